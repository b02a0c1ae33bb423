/*+++
title      = "Row sum in double, shared warp helper"
change     = "The shuffle fold is a helper of its own, used for both levels."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["float64"]
ops        = ["sum"]
techniques = ["shuffle"]
+++*/
// Fault: the helper was written for float and takes and returns float; doubles convert silently. The
// answer is right to 24 bits only, and infinite where a thread's sum exceeds the range of float. Sums of
// small integers are right.
__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1)
        v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

extern "C" __global__ void rows_double_warp_sum(const double *in, double *out, size_t n, size_t rows)
{
    __shared__ double partial[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const double *row = in + n * blockIdx.x;

    double sum = 0.0;
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        sum += row[k];

    sum = warp_sum(sum);
    if (lane == 0)
        partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < BLOCK / 32 ? partial[lane] : 0.0;
        sum = warp_sum(sum);
        if (lane == 0)
            out[blockIdx.x] = sum;
    }
}
