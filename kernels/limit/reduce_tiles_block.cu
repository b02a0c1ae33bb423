/*+++
title        = "Tiles of one block"
change       = "One block reads all tiles, so there are no partials and no second step."
expect       = "Fastest for some ten thousand elements. Beyond that, one SM does the work of the whole GPU."
after        = "reduce_tiles"
scope        = "block"
grid         = "one"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "none"
items_bytes  = 64
vector_bytes = 16
block        = 1024
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
+++*/
// Reading a small input takes no longer than starting and ending a launch: 1024 threads with four packs
// each have 64 KiB in flight. Any second step over partials would take a fifth of the whole time, and one
// block needs none. For a few hundred elements fewer threads are as fast (--block 256).
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_block(const In *in, Out *out, size_t n)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: the result.
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
