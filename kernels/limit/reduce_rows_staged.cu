/*+++
title        = "Short rows of any length, staged"
change       = "A block copies its rows to shared memory by 16-byte loads, whatever their alignment; a few lanes reduce each."
expect       = "2^20 rows of 33 in 54 us, with one warp per row 284; aligned rows of 32 in 50, without staging 49 (H100)."
after        = "reduce_rows_butterfly"
scope        = "rows"
grid         = "fill"
walk         = "warp_stride"
finish       = "none"
items_bytes  = 64
vector_bytes = 16
block        = 256
blocks       = [32, 64, 128, 256, 512]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
+++*/
// The rows of a block are contiguous in memory, so 16-byte loads read them whatever the length of a row, except at
// their two ends. In shared memory accesses need not be wide or aligned. A row gets as many lanes as it needs for
// at most ITEMS elements per lane. If the length is a multiple of 32 words, lanes of neighbouring rows would access
// the same bank, so each row starts at a different element. Rows that do not fit are reduced by one warp each,
// element by element.

// Reduces one value per lane over `lanes` lanes. The first of them returns the result.
__device__ Acc fold_lanes(Acc value, unsigned lanes)
{
    while (lanes /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, lanes));
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_rows_staged(const In *in, Out *out, size_t n, size_t rows)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = ITEMS * BLOCK;
    __shared__ uint4 tile[LOADS * BLOCK + 2];
    const unsigned tid = threadIdx.x, warps = gridDim.x * (BLOCK / 32);

    // Rows that do not fit: load and tree at once.
    for (size_t row = (size_t)blockIdx.x * (BLOCK / 32) + tid / 32; n > TILE && row < rows;
         row += warps) {
        Acc value = Op::identity();
        for (size_t k = tid % 32; k < n; k += 32)
            value = Op::combine(value, Op::lift(in[row * n + k], k));
        value = fold_lanes(value, 32);
        if (tid % 32 == 0)
            out[row] = Op::finish(value);
    }
    if (n > TILE)
        return;
    const unsigned length = n, fit = TILE / length;
    unsigned bits = 0, skew = 1;
    while (bits < 5 && ITEMS << bits < n)
        bits++;
    const unsigned lanes = 1u << bits, lane = tid & (lanes - 1);
    const unsigned turns = (length + lanes - 1 - lane) >> bits;
    while (2 * skew * lanes <= length)
        skew *= 2;
    for (size_t first = (size_t)blockIdx.x * fit; first < rows; first += (size_t)gridDim.x * fit) {
        const unsigned here = min(rows - first, (size_t)fit);
        const In *stretch = in + first * n;

        // Load: packs, and one element before or after them.
        const unsigned count = here * length;
        const unsigned head = min((unsigned)((0 - (size_t)stretch) % 16 / sizeof(In)), count);
        const unsigned packs = (count - head) / VECTOR;
        const uint4 *middle = (const uint4 *)(stretch + head);
        In *staged = (In *)(tile + 1) - head;
        uint4 pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (tid + l * BLOCK < packs)
                pack[l] = middle[tid + l * BLOCK];
        const unsigned end = tid + (tid < head ? 0 : packs * VECTOR);
        if (end < count)
            staged[end] = stretch[end];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (tid + l * BLOCK < packs)
                tile[1 + tid + l * BLOCK] = pack[l];
        __syncthreads();

        // Tree: each row by its lanes. Neighbouring rows start at different elements: no bank conflicts.
        for (unsigned base = 0; base < here; base += BLOCK >> bits) {
            const unsigned row = base + (tid >> bits), begin = lane + (row & (skew - 1)) * lanes;
            const In *own = staged + row * length;
            Acc value = Op::identity();
            unsigned k = begin;
            for (unsigned turn = 0; row < here && turn < turns; turn++) {
                value = Op::combine(value, Op::lift(own[k], k));
                k = k + lanes < length ? k + lanes : lane;
            }
            value = fold_lanes(value, lanes);
            if (row < here && lane == 0)
                out[first + row] = Op::finish(value);
        }
        __syncthreads();
    }
}
