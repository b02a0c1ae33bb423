/*+++
title      = "Grid-wide barrier of cooperative groups"
change     = "All blocks leave a partial and meet at grid.sync(); the first block then folds the partials."
scope      = "grid"
grid       = "fixed"
fixed_grid = 32
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// Right: needs a cooperative launch, as grid.sync() does; with it the barrier orders every block's store
// before the first block's loads. The counter is not used and stays 0.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__device__ Acc fold_block(Acc *shared, Acc value)
{
    const unsigned tid = threadIdx.x;
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    return shared[0];
}

extern "C" __global__ void reduce_grid_sync(const In *in, Out *out, size_t n, Acc *partials,
                                            unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const cg::grid_group grid = cg::this_grid();
    Acc value = Op::identity();
    for (size_t k = grid.thread_rank(); k < n; k += grid.num_threads())
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(shared, value);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = value;
    grid.sync();
    if (blockIdx.x > 0)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);
    value = fold_block(shared, value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
