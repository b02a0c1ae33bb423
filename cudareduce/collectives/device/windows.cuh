// What all that runs on several GPUs shares. Each rank has a window of memory that all ranks can address, and
// all windows are laid out alike: so an array is an offset, and of whom it is, is the rank's number.
#include <cuda/atomic>

namespace ranks {
template <typename T> using Shared = cuda::atomic_ref<T, cuda::thread_scope_system>;
using Word = unsigned long long;

// The first words of a window: 1 if this rank has waited too long for another one, and for which.
struct Status { unsigned gave_up, whom; };

// Where the windows begin, as this rank addresses them, which rank this is, and, where races are looked for, which
// one is late, and which of its blocks the latest. Kernels have it as an argument that nobody writes to, and so that
// nobody copies: what a launch brings along is at hand sooner than a __constant__.
struct Ranks {
    Word window[RANKS], me, late, latest;

    template <typename T> __device__ T *at(size_t rank, size_t offset) const { return (T *)(window[rank] + offset); }
    template <typename T> __device__ T *here(size_t offset) const { return at<T>(me, offset); }

    // Wait until `ready`, but not for ever, since a rank that has ended would leave this GPU hanging; and who
    // has given up once waits for nobody any more.
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

    // In a build that looks for races one rank is late here, for any reason that a GPU may have, and one of its
    // blocks later than all others: those that have ended do not speak for it.
    __device__ void stumble() const
    {
        if constexpr (STUMBLE > 0)
            if (me == late && threadIdx.x == 0)
                for (const long long begin = clock64(); clock64() - begin < STUMBLE * (1 + (blockIdx.x == latest));)
                    __nanosleep(100); // the others go on meanwhile, where a CPU has all blocks
    }

    // A barrier of block b of all ranks, whose threads have all come; what was written before it is read
    // behind it. Each rank has a word for each block of each other one, so nothing is counted or cleared:
    // the barrier's number is written there, and numbers only grow.
    __device__ void meet(size_t flags, unsigned number) const
    {
        __syncthreads();
        if (threadIdx.x < RANKS) {
            unsigned *theirs = at<unsigned>(threadIdx.x, flags) + blockIdx.x * RANKS + me;
            unsigned *mine = here<unsigned>(flags) + blockIdx.x * RANKS + threadIdx.x;
            Shared<unsigned>(*theirs).store(number, cuda::std::memory_order_release);
            __syncwarp((1u << RANKS) - 1); // all have been told before anybody waits
            wait(threadIdx.x, [=] {
                return (int)(Shared<unsigned>(*mine).load(cuda::std::memory_order_acquire) - number) >= 0;
            });
        }
        stumble();
        __syncthreads();
    }
};
}
