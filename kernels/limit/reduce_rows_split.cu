/*+++
title        = "Several blocks per row"
change       = "As many blocks as the GPU holds share the rows evenly; the last block of each row reduces its partials."
expect       = "With fewer rows than SMs, the speed of one long array: all SMs read."
after        = "reduce_rows_block"
scope        = "rows"
grid         = "fill_by_row"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
+++*/
// 16 rows of one block each keep 16 SMs busy. Here a row has as many blocks as fit, which stride over its tiles
// as a grid does over one array. Each row has its own count: the last block of a row reduces the partials of
// that row alone, while other rows continue. Four loads are in flight, whatever the tile size: eight need twice
// the registers, and half as many blocks fit.
#include "tiles.cuh"
#include <cuda/atomic>

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_rows_split(const In *in, Out *out, size_t n, size_t rows, Acc *partials, unsigned *counter)
{
    constexpr unsigned PACKS = ITEMS / VECTOR, LOADS = PACKS % 4 == 0 ? 4 : PACKS, TILE = PACKS * BLOCK;
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x, parts = gridDim.x / (unsigned)rows, part = blockIdx.x % parts;
    const unsigned index = blockIdx.x / parts;
    const In *row = in + (size_t)index * n;
    const size_t head = min((0 - (size_t)row) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(row + head);

    // Load: one element before or after the packs, then packs.
    const size_t end = tid + (tid < head ? 0 : packs * VECTOR);
    Acc value = part == parts - 1 && end < n ? Op::lift(row[end], end) : Op::identity();
    for (size_t tile = part * TILE; tile < packs; tile += (size_t)parts * TILE) {
#pragma unroll 1
        for (unsigned step = 0; step < PACKS / LOADS; step++) {
            const size_t first = tile + step * LOADS * BLOCK + tid;
            Pack pack[LOADS];
#pragma unroll
            for (unsigned l = 0; l < LOADS; l++)
                if (first + l * BLOCK < packs)
                    pack[l] = middle[first + l * BLOCK];
#pragma unroll
            for (unsigned k = 0; k < LOADS * VECTOR; k++) {
                const unsigned l = k / VECTOR, e = k % VECTOR;
                const size_t p = first + l * BLOCK;
                if (p < packs)
                    value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
            }
        }
    }

    // Tree.
    value = fold_block(value);

    // Write: one partial per block; the last block of a row to arrive reduces them and writes the result of the row.
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(counter[index]);
        partials[blockIdx.x] = value;
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == parts - 1;
        if (is_last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < parts; k += BLOCK)
        value = Op::combine(value, partials[index * parts + k]);
    value = fold_block(value);
    if (tid == 0)
        out[index] = Op::finish(value);
}
