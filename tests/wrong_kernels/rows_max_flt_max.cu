/*+++
title      = "Row maximum, two shuffle levels"
change     = "One block a row; the first warp folds what the warps left, padded to 32 lanes."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 128
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["max"]
techniques = ["shuffle", "multi_add"]
+++*/
// Fault: the least finite float stands in for -infinity, since softmax code was the model, where scores
// are finite. A row of nothing but -infinity (a fully masked row) gets -3.4e38 as its maximum.
#define NEG_LARGE (-3.402823466e+38f)

__device__ __forceinline__ float pick(float a, float b)
{
    if (a != a)
        return a;
    return a > b ? a : b;
}

__device__ float fold_lanes(float m)
{
    for (unsigned d = 16; d; d /= 2)
        m = pick(m, __shfl_down_sync(~0u, m, d));
    return m;
}

extern "C" __global__ void rows_max_flt_max(const float *in, float *out, size_t n, size_t rows)
{
    __shared__ float part[32];
    const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float *row = in + (size_t)blockIdx.x * n;

    float m = NEG_LARGE;
    for (size_t c = threadIdx.x; c < n; c += blockDim.x)
        m = pick(m, row[c]);
    m = fold_lanes(m);
    if (lane == 0)
        part[warp] = m;
    __syncthreads();

    if (warp == 0) {
        m = lane < blockDim.x / 32 ? part[lane] : NEG_LARGE;
        m = fold_lanes(m);
        if (lane == 0)
            out[blockIdx.x] = m;
    }
}
