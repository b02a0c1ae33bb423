/*+++
title        = "Tiles of one block, scalar loads"
change       = "Threads load single elements, so alignment and ends need no code; one aligned tile has a path of its own."
expect       = "4.02 us at 2^10 against 4.12 with 16-byte loads, 4.11 against 4.24 at 2^12, 4.58 against 4.67 at 2^14 (H100)."
after        = "reduce_tiles_block"
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
// In a launch of four microseconds, fetching instructions and computing addresses is a visible part of the
// time. Packs need some fifty instructions and a branch to separate them from the ends, before the first
// load. Single elements need only a bound, compared in 32 bits. 4-byte loads keep less memory in flight
// than packs, which does not matter for few bytes.
#include "tiles.cuh"

// Reduces the items of one tile of this thread by a tree.
__device__ Acc fold_items(Acc (&item)[ITEMS])
{
#pragma unroll
    for (unsigned k = 1; k < ITEMS; k *= 2)
#pragma unroll
        for (unsigned i = 0; i + k < ITEMS; i += 2 * k)
            item[i] = Op::combine(item[i], item[i + k]);
    return item[0];
}

// Reduces the elements of this thread if the input is one aligned tile, which has neither ends nor bounds:
// four load instructions instead of forty.
__device__ Acc load_whole(const Pack *in)
{
    Pack pack[ITEMS / VECTOR];
#pragma unroll
    for (unsigned l = 0; l < ITEMS / VECTOR; l++)
        pack[l] = in[threadIdx.x + l * BLOCK];
    Acc item[ITEMS];
#pragma unroll
    for (unsigned k = 0; k < ITEMS; k++) {
        const unsigned l = k / VECTOR, e = k % VECTOR;
        item[k] = Op::lift(pack[l].at[e], (threadIdx.x + l * BLOCK) * VECTOR + e);
    }
    return fold_items(item);
}

// Reduces the elements of this thread of any input, tile by tile. An item past the end is the identity: a
// select, not a branch.
__device__ Acc load_elements(const In *in, size_t n)
{
    constexpr unsigned TILE = ITEMS * BLOCK;
    Acc value = Op::identity();
    size_t tile = 0;
    do {
        const unsigned left = min(n - tile, (size_t)TILE);
        Acc item[ITEMS];
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned at = threadIdx.x + k * BLOCK;
            item[k] = at < left ? Op::lift(in[tile + at], tile + at) : Op::identity();
        }
        value = Op::combine(value, fold_items(item));
        tile += TILE;
    } while (tile < n);
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_scalar(const In *in, Out *out, size_t n)
{
    // Load and tree.
    const bool whole = n == ITEMS * BLOCK && (size_t)in % 16 == 0;
    const Acc value = fold_block(whole ? load_whole((const Pack *)in) : load_elements(in, n));

    // Write: the result.
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
