/*+++
title      = "Error-free sums of half pairs"
change     = "Two half pairs are added by half2 fused multiply-adds that also yield the rounding error; both go into float."
scope      = "grid"
grid       = "fixed"
fixed_grid = 96
walk       = "grid_stride"
items      = 4
finish     = "atomic"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["shuffle", "multi_add", "grid_stride", "atomic"]
dtypes     = ["float16"]
ops        = ["sum"]
+++*/
// Right: sum and error of a two-sum are together the exact sum of two halves unless it overflows, and then
// (and for infinities and NaNs) the elements are widened one by one. x * 1 + y rounds just once.
#include <cuda_fp16.h>

__device__ float sum_of_four(__half2 a, __half2 b)
{
    const __half2 one = __float2half2_rn(1.0f), minus = __float2half2_rn(-1.0f);
    const __half2 sum = __hfma2(b, one, a);
    const __half2 share = __hfma2(a, minus, sum);
    const __half2 rest = __hfma2(share, minus, sum);
    const __half2 lost = __hfma2(__hfma2(rest, minus, a), one, __hfma2(share, minus, b));
    const float2 s = __half22float2(sum), e = __half22float2(lost);
    const float total = (s.x + s.y) + (e.x + e.y);
    if (isfinite(total))
        return total;
    const float2 fa = __half22float2(a), fb = __half22float2(b);
    return (fa.x + fb.x) + (fa.y + fb.y);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_half_two_sum(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const __half zero = __float2half(0.0f);
    const size_t step = 4 * (size_t)gridDim.x * BLOCK;
    Acc value = 0;
    for (size_t k = 4 * ((size_t)blockIdx.x * BLOCK + threadIdx.x); k < n; k += step) {
        const __half2 a = __halves2half2(in[k], k + 1 < n ? in[k + 1] : zero);
        const __half2 b = __halves2half2(k + 2 < n ? in[k + 2] : zero, k + 3 < n ? in[k + 3] : zero);
        value += sum_of_four(a, b);
    }
    const auto fold_warp = [&] {
        for (int offset = 16; offset > 0; offset /= 2)
            value += __shfl_down_sync(0xffffffffu, value, offset);
    };
    fold_warp();
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    value = threadIdx.x < BLOCK / 32 ? of_warp[threadIdx.x] : Acc(0);
    fold_warp();
    if (threadIdx.x == 0)
        Op::atomic(out, value);
}
