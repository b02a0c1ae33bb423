/*+++
title      = "Row sum of halves widened by hand"
change     = "A half becomes a float by moving its bits and re-biasing the exponent, all in integer units."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 128
blocks     = [32, 64, 128, 256, 512]
dtypes     = ["float16"]
ops        = ["sum"]
+++*/
// Fault: exponent 0 and exponent 31 get the bias like all others. A subnormal half m * 2^-24 becomes
// (1 + m / 1024) * 2^-15, and infinities and NaN become numbers from 65536 up. Zeros have a test of their
// own and normal halves are right.
__device__ __forceinline__ float widen(__half h)
{
    const unsigned bits = __half_as_ushort(h), magnitude = bits & 0x7fffu;
    if (magnitude == 0)
        return 0.0f;
    return __uint_as_float(((bits & 0x8000u) << 16) | ((magnitude << 13) + (112u << 23)));
}

extern "C" __global__ void rows_half_bits_widen(const __half *in, float *out, size_t n, size_t rows)
{
    __shared__ float cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const __half *row = in + (size_t)blockIdx.x * n;

    float sum = 0.0f;
    for (size_t k = tid; k < n; k += BLOCK)
        sum += widen(row[k]);
    cells[tid] = sum;
    __syncthreads();
    for (unsigned s = BLOCK / 2; s; s /= 2) {
        if (tid < s)
            cells[tid] += cells[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = cells[0];
}
