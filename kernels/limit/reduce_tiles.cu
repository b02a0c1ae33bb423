/*+++
title        = "Tiles of 16-byte loads"
change       = "Each thread issues four 16-byte loads before the first addition; blocks stride over tiles."
expect       = "36.8 us at 2^25 instead of 38.8, and 97.5 % of the bandwidth of a read-only kernel at 2^28 (H200)."
after        = "reduce_fill"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "relaunch_one_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle"]
+++*/
// Memory latency is about a microsecond, so bandwidth depends on how many bytes are in flight. A load
// brings at most 16 bytes, whatever the type: 4 float32, 8 float16 or 16 int8. A tile is what a block
// loads at once, contiguous in memory.
//
// __launch_bounds__: a full SM has 2048 threads, which leaves 32 registers per thread. For 2-byte
// elements the compiler takes 40, so only three of four blocks fit and the fourth runs after them;
// MIN_BLOCKS makes it use 32. For other types it takes 32 unasked, and slower code if asked.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) reduce_tiles(const In *in, Out *out, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK;
    const unsigned tid = threadIdx.x;
    // Packs start at the first 16-byte boundary of the input.
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);

    // Load: the last block, which never has more tiles than another, also takes the elements before and after
    // the packs, at most one per thread.
    const size_t end = tid + (tid < head ? 0 : packs * VECTOR);
    Acc value = Op::identity();
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value = Op::lift(in[end], end);
    for (size_t tile = (size_t)blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + tid;
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * BLOCK < packs)
                pack[l] = middle[first + l * BLOCK];
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned l = k / VECTOR, e = k % VECTOR;
            const size_t p = first + l * BLOCK;
            if (p < packs)
                value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
    }

    // Tree: shuffles within each warp, then the partials of the warps in turn.
    value = fold_block(value);

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
