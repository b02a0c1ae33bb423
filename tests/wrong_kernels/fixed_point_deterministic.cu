/*+++
title      = "Reproducible sum in fixed point"
change     = "Elements become 64-bit integers in units of 2^-20, whose sum no order of arrival can change."
scope      = "grid"
grid       = "fixed"
fixed_grid = 256
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["sum"]
techniques = ["grid_stride", "atomic"]
+++*/
// Fault: what is below 2^-21 counts as 0, what is beyond 2^43 saturates, and NaN and infinities become
// integers. A sum of values near 1 is as good as a float sum; one of values near 1e-7 is 0.
constexpr float UNITS = 1048576.0f;

extern "C" __global__ void fixed_point_deterministic(const float *in, float *out, size_t n)
{
    __shared__ unsigned long long total;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();

    long long sum = 0;
    const size_t step = (size_t)gridDim.x * BLOCK;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += step)
        sum += __float2ll_rn(in[k] * UNITS);

#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&total, (unsigned long long)sum); // two's complement: the sign takes care of itself
    __syncthreads();

    if (threadIdx.x == 0)
        out[blockIdx.x] = (float)((double)(long long)total / UNITS);
}
