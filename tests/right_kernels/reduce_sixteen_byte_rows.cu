/*+++
title      = "Rows in 16-byte packs, ragged at both ends"
change     = "Whatever the element type, a row's aligned middle is read in packs of 16 bytes and its two ends one element at a time."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 128
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// Right: an element is aligned to its size, so whole elements lie before the first 16-byte boundary; a row
// too short to reach it is all head. Each element's index is counted from its row's begin.
#include <cstdint>

constexpr unsigned PACK = 16 / sizeof(In);
struct alignas(16) Packed {
    In element[PACK];
};

extern "C" __global__ void reduce_sixteen_byte_rows(const In *__restrict__ in, Out *__restrict__ out,
                                                    size_t n, size_t rows)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const In *row = in + blockIdx.x * n;
    const size_t to_boundary = (0 - (uintptr_t)row) % 16 / sizeof(In);
    const size_t head = min(to_boundary, n), packs = (n - head) / PACK, tail = head + packs * PACK;
    const Packed *pack = reinterpret_cast<const Packed *>(row + head);

    Acc value = Op::identity();
    for (size_t p = tid; p < packs; p += BLOCK) {
        const Packed now = pack[p];
#pragma unroll
        for (unsigned e = 0; e < PACK; e++)
            value = Op::combine(value, Op::lift(now.element[e], head + p * PACK + e));
    }
    for (size_t k = tid; k < head; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    for (size_t k = tail + tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));

    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
