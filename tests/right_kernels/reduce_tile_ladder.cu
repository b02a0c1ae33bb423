/*+++
title      = "Tiles of 32, 16, 8, 4 and 2"
change     = "A template recursion partitions a tile into halves and exchanges one value in each, down to pairs."
scope      = "grid"
grid       = "fixed"
fixed_grid = 48
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["shuffle", "grid_stride", "last_block", "multi_add"]
+++*/
// Right: a tile's shfl_xor by half its size pairs lanes of the same tile, so the recursion is a butterfly
// of five steps after which each lane holds the warp's total; tiles take structs as well as scalars.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

template <unsigned SIZE, class Group>
__device__ Acc fold_tile(const Group &group, Acc value)
{
    const cg::thread_block_tile<SIZE, Group> tile = cg::tiled_partition<SIZE>(group);
    value = Op::combine(value, tile.shfl_xor(value, SIZE / 2));
    if constexpr (SIZE > 2)
        return fold_tile<SIZE / 2>(tile, value);
    else
        return value;
}

__device__ Acc fold_block(const cg::thread_block &block, Acc value)
{
    __shared__ Acc of_warp[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = fold_tile<32>(block, value);
    block.sync();
    if (lane == 0)
        of_warp[warp] = value;
    block.sync();
    return fold_tile<32>(block, lane < BLOCK / 32 ? of_warp[lane] : Op::identity());
}

extern "C" __global__ void reduce_tile_ladder(const In *in, Out *out, size_t n, Acc *partials,
                                              unsigned *counter)
{
    __shared__ bool is_last;
    const cg::thread_block block = cg::this_thread_block();
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(block, value);
    if (block.thread_rank() == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    block.sync();
    if (!is_last)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    value = fold_block(block, value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
