// Device functions of all multi-GPU kernels. Each rank has a window of memory that all ranks can address. All windows
// have the same layout, so a rank and an offset give an address.
#include <cuda/atomic>

namespace ranks {
template <typename T> using Shared = cuda::atomic_ref<T, cuda::thread_scope_system>;
using Word = unsigned long long;

// The first words of a window: 1 if a wait of this rank timed out, and the rank it waited for.
struct Status { unsigned gave_up, whom; };

// The addresses of all windows in this process, this rank, and, in builds with delays, the delayed rank and its most
// delayed block. A __grid_constant__ argument, since it is read faster than a __constant__.
struct Ranks {
    Word window[RANKS], me, late, latest;

    template <typename T> __device__ T *at(size_t rank, size_t offset) const { return (T *)(window[rank] + offset); }
    template <typename T> __device__ T *here(size_t offset) const { return at<T>(me, offset); }

    // Waits until `ready()`. Times out after WAIT_LIMIT clocks, since a rank may have ended; later waits then return
    // at once.
    template <typename Ready> __device__ void wait(unsigned whom, Ready ready) const
    {
        volatile Status *status = here<Status>(0);
        const long long begin = clock64();
        for (unsigned polls = 1; !ready(); polls++)
            if (polls % 1024 == 0 && (status->gave_up || clock64() - begin > WAIT_LIMIT)) {
                if (!status->gave_up)
                    status->whom = whom;
                status->gave_up = 1;
                return;
            }
    }

    // In builds with delays, which expose races: pauses one rank, and one of its blocks twice as long.
    __device__ void delay_if_late() const
    {
        if constexpr (DELAY_CLOCKS > 0)
            if (me == late && threadIdx.x == 0)
                for (const long long begin = clock64(); clock64() - begin < DELAY_CLOCKS * (1 + (blockIdx.x == latest));)
                    __nanosleep(100); // lets other blocks run on the CPU emulator
    }

    // A barrier of this block with the same block on all ranks: writes before it are visible after it. Each rank has a
    // flag for each block of each rank, which receives the barrier's number. Numbers only grow, so no flag is cleared.
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
        delay_if_late();
        __syncthreads();
    }
};
}
