/*+++
title      = "Tree that threads drop out of"
change     = "A cuda::barrier in shared memory replaces the block barrier; threads without further work drop out of it and end."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 2
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "first_add"]
+++*/
// Right: a thread drops out by its arrival at the phase that publishes its last store, and each phase
// then expects as many threads as the next step of the tree has.
#include <cuda/barrier>
#pragma nv_diag_suppress static_var_with_dynamic_init

using Barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void reduce_barrier_drop(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    __shared__ Barrier barrier;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        init(&barrier, BLOCK);
    __syncthreads();

    const size_t begin = (size_t)blockIdx.x * BLOCK * ITEMS;
    Acc value = Op::identity();
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * BLOCK + tid;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    cells[tid] = value;

    for (unsigned working = BLOCK / 2; working > 0; working /= 2) {
        if (tid >= working) {
            barrier.arrive_and_drop();
            return;
        }
        barrier.arrive_and_wait();
        cells[tid] = Op::combine(cells[tid], cells[tid + working]);
    }
    out[blockIdx.x] = Op::finish(cells[0]);
}
