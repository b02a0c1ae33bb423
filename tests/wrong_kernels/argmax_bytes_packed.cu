/*+++
title      = "Arg-maximum of bytes in one word"
change     = "A byte and its index share one 32-bit key, so one integer maximum finds both."
expect     = "One shuffle a step instead of four, and no comparison of indices."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 512
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["uint8"]
ops        = ["argmax"]
+++*/
// Fault: 8 bits of value leave 24 for the index, which is cut off: beyond 2^24 elements a maximum at
// index k is reported at k modulo 2^24, and ties go to the smallest remainder.
__device__ unsigned key_of(unsigned char x, size_t k)
{
    return (unsigned)x << 24 | (0xffffffu - ((unsigned)k & 0xffffffu));
}

extern "C" __global__ void argmax_bytes_packed(const unsigned char *in, long long *out, size_t n)
{
    __shared__ unsigned keys[32];
    const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;

    unsigned key = 0;
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        key = max(key, key_of(in[k], k));
#pragma unroll
    for (int d = 16; d > 0; d >>= 1)
        key = max(key, __shfl_xor_sync(0xffffffffu, key, d));
    if (lane == 0)
        keys[warp] = key;
    __syncthreads();

    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < BLOCK / 32; ++w)
            key = max(key, keys[w]);
        *out = 0xffffffu - (key & 0xffffffu);
    }
}
