/*+++
title      = "Polled flags, a word a block"
change     = "Every block raises a volatile flag behind its partial; the first block polls them all, one thread each, and lowers them."
scope      = "grid"
grid       = "fixed"
fixed_grid = 30
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// Right: one thread stores the partial, fences and raises the flag; another sees the flag, fences and reads.
// A flag is raised once a launch and lowered by the only thread that polls it. Just the first block waits.
__device__ volatile int ready[32];

extern "C" __global__ void reduce_polled_flags(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));

    for (int round = 0;; round++) {
        shared[tid] = value;
        __syncthreads();
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();
        }
        if (round == 1)
            break;
        if (blockIdx.x > 0) {
            if (tid == 0) {
                partials[blockIdx.x] = shared[0];
                __threadfence();
                ready[blockIdx.x] = 1;
            }
            return;
        }

        value = tid == 0 ? shared[0] : Op::identity();
        if (tid > 0 && tid < gridDim.x) {
            while (ready[tid] == 0)
                ;
            __threadfence();
            value = __ldcg(partials + tid);
            ready[tid] = 0;
        }
    }
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
