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
// loads at once, contiguous in memory. The loop over tiles is load_tiles in tiles.cuh.
//
// __launch_bounds__: a full SM has 2048 threads, which leaves 32 registers per thread. For 2-byte
// elements the compiler takes 40, so only three of four blocks fit and the fourth runs after them;
// MIN_BLOCKS makes it use 32. For other types it takes 32 unasked, and slower code if asked.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) reduce_tiles(const In *in, Out *out, size_t n)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: one partial per block.
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(value);
}
