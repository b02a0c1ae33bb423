// Shared by all multi-GPU kernels. Each rank has a window of memory that all ranks can address. All windows have the
// same layout, so an offset and the number of a rank are an address.
#include <cuda/atomic>

namespace ranks {
template <typename T> using Shared = cuda::atomic_ref<T, cuda::thread_scope_system>;
using Word = unsigned long long;

// The first words of a window: 1 if this rank has waited too long, and the rank it waited for.
struct Status { unsigned gave_up, whom; };

// The addresses of all windows in this process, the number of this rank, and, in builds that look for races, the rank
// that is late and its block that is latest. A __grid_constant__ argument: it is read faster than a __constant__.
struct Ranks {
    Word window[RANKS], me, late, latest;

    template <typename T> __device__ T *at(size_t rank, size_t offset) const { return (T *)(window[rank] + offset); }
    template <typename T> __device__ T *here(size_t offset) const { return at<T>(me, offset); }

    // Waits until `ready`, but gives up after a while, since a rank may have ended. After that no wait waits again.
    template <typename Ready> __device__ void wait(unsigned whom, Ready ready) const
    {
        volatile Status *status = here<Status>(0);
        const long long begin = clock64();
        for (unsigned looks = 1; !ready(); looks++)
            if (looks % 1024 == 0 && (status->gave_up || clock64() - begin > PATIENCE)) {
                if (!status->gave_up)
                    status->whom = whom;
                status->gave_up = 1;
                return;
            }
    }

    // In builds that look for races, one rank is late here, and one of its blocks later than the others.
    __device__ void stumble() const
    {
        if constexpr (STUMBLE > 0)
            if (me == late && threadIdx.x == 0)
                for (const long long begin = clock64(); clock64() - begin < STUMBLE * (1 + (blockIdx.x == latest));)
                    __nanosleep(100); // lets other blocks run on the CPU emulator
    }

    // A barrier of this block on all ranks: writes before it are visible after it. Each rank has a word for each block
    // of each rank, which receives the number of the barrier. Numbers only grow, so nothing is cleared.
    __device__ void meet(size_t flags, unsigned number) const
    {
        __syncthreads();
        if (threadIdx.x < RANKS) {
            unsigned *theirs = at<unsigned>(threadIdx.x, flags) + blockIdx.x * RANKS + me;
            unsigned *mine = here<unsigned>(flags) + blockIdx.x * RANKS + threadIdx.x;
            Shared<unsigned>(*theirs).store(number, cuda::std::memory_order_release);
            __syncwarp((1u << RANKS) - 1); // all flags are stored before any thread waits
            wait(threadIdx.x, [=] {
                return (int)(Shared<unsigned>(*mine).load(cuda::std::memory_order_acquire) - number) >= 0;
            });
        }
        stumble();
        __syncthreads();
    }
};
}
