/*+++
title      = "Grid-stride maximum, butterfly warps"
change     = "Threads keep a running maximum, warps fold by xor shuffles, thread 0 folds the warps."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 384, 512, 1024]
dtypes     = ["float32"]
ops        = ["max"]
+++*/
// Fault: FLT_MIN is taken for the most negative float (as INT_MIN is for int), but it is the smallest
// positive normal one. Any array whose elements are all negative or zero has the answer 1.17549e-38.
#include <cfloat>

static __device__ float warp_max(float v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        v = Op::combine(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}

extern "C" __global__ void warp_max_flt_min(const float *in, float *out, size_t n)
{
    __shared__ float per_warp[BLOCK / 32];
    const size_t step = (size_t)gridDim.x * BLOCK;

    float best = FLT_MIN;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += step)
        best = Op::combine(best, in[k]);

    best = warp_max(best);
    if (threadIdx.x % 32 == 0)
        per_warp[threadIdx.x / 32] = best;
    __syncthreads();

    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            best = Op::combine(best, per_warp[w]);
        out[blockIdx.x] = best;
    }
}
