/*+++
title        = "One block per row, four loads in flight"
change       = "A block reads a row by 16-byte loads, four per thread before the first addition."
expect       = "For rows of some ten thousand elements and more, where one warp has too few loads in flight."
after        = "reduce_rows_warp"
scope        = "rows"
grid         = "block_per_row"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "none"
items_bytes  = 64
vector_bytes = 16
block        = 256
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
+++*/
// A warp reads a long row in many iterations, and with few rows its SM has little else to do. A block of 256
// threads has 16 KiB of a row in flight, and 8 such blocks on an SM all that it can hold. If rows are fewer
// than the blocks that the GPU holds, each must be split: see reduce_rows_split and reduce_reshape.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
reduce_rows_block(const In *in, Out *out, size_t n, size_t rows)
{
    constexpr unsigned LOADS = ITEMS / VECTOR;
    const unsigned tid = threadIdx.x;
    const In *row = in + blockIdx.x * n;
    const size_t head = min((0 - (size_t)row) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(row + head);

    // Load: one element before or after the packs, then packs.
    const size_t end = tid + (tid < head ? 0 : packs * VECTOR);
    Acc value = end < n ? Op::lift(row[end], end) : Op::identity();
    for (size_t first = tid; first < packs; first += LOADS * BLOCK) {
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

    // Tree.
    value = fold_block(value);

    // Write: one result per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
