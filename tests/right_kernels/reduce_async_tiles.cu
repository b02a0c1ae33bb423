/*+++
title      = "Group-wide asynchronous copies, two tiles"
change     = "The block copies the next tile into shared memory asynchronously while it folds the one before."
scope      = "grid"
grid       = "fixed"
fixed_grid = 32
walk       = "contiguous"
finish     = "last_block"
block      = 128
blocks     = [64, 128, 256]
techniques = ["multi_add", "last_block"]
dtypes     = ["float32", "float64", "float16", "bfloat16", "int32", "uint32", "int64", "uint64"]
+++*/
// Right: wait_prior<1> and wait are barriers of the whole group, so a tile is complete for all threads
// when it is read; the block.sync() at the loop's end keeps the copy of the next round off a tile in use.
// Bytes are left out: of an odd number of them at an odd place CUDA's copy may lose the last one.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__device__ Acc fold_block(Acc *cells, Acc value)
{
    const auto combine = [](Acc a, Acc b) { return Op::combine(a, b); };
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    value = cg::reduce(warp, value, combine);
    if (warp.thread_rank() == 0)
        cells[warp.meta_group_rank()] = value;
    __syncthreads();
    value = warp.thread_rank() < BLOCK / 32 ? cells[warp.thread_rank()] : Op::identity();
    value = cg::reduce(warp, value, combine);
    __syncthreads();
    return value;
}

extern "C" __global__ void reduce_async_tiles(const In *in, Out *out, size_t n, Acc *partials,
                                              unsigned *counter)
{
    constexpr unsigned TILE = 4 * BLOCK;
    __shared__ alignas(16) In tiles[2][TILE];
    __shared__ Acc cells[BLOCK / 32];
    __shared__ bool is_last;
    const auto block = cg::this_thread_block();
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(blockIdx.x * share, n), count = min(share, n - begin);
    const auto fetch = [&](unsigned slot, size_t tile) {
        cg::memcpy_async(block, tiles[slot], in + begin + tile,
                         sizeof(In) * min((size_t)TILE, count - tile));
    };

    Acc value = Op::identity();
    unsigned slot = 0;
    if (count > 0)
        fetch(0, 0);
    for (size_t tile = 0; tile < count; tile += TILE, slot ^= 1) {
        if (count - tile > TILE) {
            fetch(slot ^ 1, tile + TILE);
            cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        const unsigned filled = (unsigned)min((size_t)TILE, count - tile);
        for (unsigned k = threadIdx.x; k < filled; k += BLOCK)
            value = Op::combine(value, Op::lift(tiles[slot][k], begin + tile + k));
        block.sync();
    }

    value = fold_block(cells, value);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    block.sync();
    if (!is_last)
        return;
    value = threadIdx.x < gridDim.x ? __ldcg(partials + threadIdx.x) : Op::identity();
    value = fold_block(cells, value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
