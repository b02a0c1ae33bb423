/*+++
title        = "One warp a row, eight loads in front"
change       = "A warp takes a row by packs of 16 bytes, eight a lane before the first addition; no block barrier."
expect       = "Twice CUB's speed on rows of 1000 elements: 4.6 of 4.8 TB/s of theory (H200)."
after        = "reduce_rows_broadcast"
scope        = "rows"
grid         = "warp_per_row"
walk         = "warp_stride"
finish       = "none"
items_bytes  = 128
vector_bytes = 16
block        = 256
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
+++*/
// A block a row has most threads idle where rows are short, and all of them at barriers. A warp has 4 KiB
// of loads under way at once: a whole row of 1024 float32. Warps never wait for each other, so while one
// folds, the others load. Where n is odd, rows begin anywhere: each has a head and a tail of its own,
// together fewer elements than a warp has lanes. A compiler that saves registers, or finds a load under
// the condition of its addition, puts the two together, and one load is under way instead of eight: so
// behind the end a lane loads the last pack again, and a bound of 1024 threads an SM grants 64 registers.
struct alignas(16) Pack { In at[VECTOR]; };

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
reduce_rows_warp(const In *in, Out *out, size_t n, size_t rows)
{
    constexpr unsigned LOADS = ITEMS / VECTOR;
    const unsigned lane = threadIdx.x % 32;
    const size_t index = (size_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (index >= rows)
        return;
    const In *row = in + index * n;
    const size_t head = min((0 - (size_t)row) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(row + head);

    // Load: of the ends one element, then packs.
    const size_t end = lane + (lane < head ? 0 : packs * VECTOR);
    Acc value = end < n ? Op::lift(row[end], end) : Op::identity();
    for (size_t first = lane; first < packs; first += LOADS * 32) {
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            pack[l] = middle[min(first + l * 32, packs - 1)];
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned l = k / VECTOR, e = k % VECTOR;
            const size_t p = first + l * 32;
            if (p < packs)
                value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
    }

    // Tree: shuffles.
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, lanes));

    // Write: one answer a warp.
    if (lane == 0)
        out[index] = Op::finish(value);
}
