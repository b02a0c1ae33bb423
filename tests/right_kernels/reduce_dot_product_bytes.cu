/*+++
title      = "Byte sums by dp4a"
change     = "Four bytes of a row are summed by one dot product with four ones; a row's ends are taken bytewise."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
vector     = 4
finish     = "none"
block      = 128
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["shuffle", "multi_add"]
dtypes     = ["int8", "uint8"]
ops        = ["sum"]
+++*/
// Right: the word loads begin at the row's first address that is a multiple of 4, wherever the row begins;
// each dot product starts from 0 and has at most 1020, so a wider accumulator is served as well.
#include <cstdint>

template <class Byte>
__device__ __forceinline__ int sum_of_four(unsigned word)
{
    if constexpr (Byte(-1) < Byte(0))
        return __dp4a((int)word, 0x01010101, 0);
    else
        return (int)__dp4a(word, 0x01010101u, 0u);
}

extern "C" __global__ void reduce_dot_product_bytes(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const unsigned tid = threadIdx.x;
    const In *row = in + (size_t)blockIdx.x * n;
    const size_t head = min((size_t)(-(uintptr_t)row & 3), n), words = (n - head) / 4;
    const unsigned *word = (const unsigned *)(row + head);

    Acc value = 0;
    for (size_t k = tid; k < words; k += BLOCK)
        value += Acc(sum_of_four<In>(word[k]));
    if (tid < head)
        value += Acc(row[tid]);
    const size_t rest = head + 4 * words + tid;
    if (rest < n)
        value += Acc(row[rest]);

    for (int lanes = 16; lanes; lanes /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lanes);
    if (tid % 32 == 0)
        of_warp[tid / 32] = value;
    __syncthreads();
    if (tid == 0) {
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            value += of_warp[warp];
        out[blockIdx.x] = Op::finish(value);
    }
}
