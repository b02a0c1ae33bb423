/*+++
title        = "Tiles in one launch"
change       = "The last block to arrive reduces all partials in the same launch."
expect       = "One launch less saves 1.2 to 1.7 us from 2^14 to 2^25 (H200). For a grid of one block it is only a cost."
after        = "reduce_tiles"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
+++*/
// As in reduce_last_block, each block stores its partial, executes a fence and counts its arrival, so the
// block that counts last sees all partials. A grid that fills the GPU has some hundred partials, one for
// each thread of the last block. They are reduced in the order of blocks: the same input gives the same bits.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
reduce_tiles_last_block(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    value = fold_block(value);
    if (tid == 0)
        *out = Op::finish(value);
}
