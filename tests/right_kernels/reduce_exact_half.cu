/*+++
title      = "Exact sums of halves in a wide whole number"
change     = "Every float16 is a multiple of 2^-24, so rows are summed exactly in 128-bit whole numbers and rounded once."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "multi_add"]
dtypes     = ["float16"]
ops        = ["sum"]
+++*/
// Right: a finite half times 2^24 is a whole number below 2^41, which a float holds; 128 bits hold any number
// of them. Infinities and NaNs are not added but voted on by the block.
#include <cuda_fp16.h>

struct Wide {
    unsigned long long low;
    long long high;

    __device__ void add(Wide other)
    {
        low += other.low;
        high += other.high + (low < other.low);
    }
    __device__ double scaled_down() const
    {
        Wide size = *this;
        if (high < 0) {
            size.low = 0 - low;
            size.high = ~high + (low == 0);
        }
        const double magnitude = (double)size.high * 0x1p40 + (double)size.low * 0x1p-24;
        return high < 0 ? -magnitude : magnitude;
    }
};

extern "C" __global__ void reduce_exact_half(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Wide cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const __half *row = in + (size_t)blockIdx.x * n;

    Wide mine = {0, 0};
    bool nan = false, plus = false, minus = false;
    for (size_t k = tid; k < n; k += BLOCK) {
        const float x = __half2float(row[k]);
        nan |= isnan(x);
        plus |= x == INFINITY;
        minus |= x == -INFINITY;
        if (isfinite(x)) {
            const long long units = (long long)(x * 0x1p24f);
            mine.add({(unsigned long long)units, units >> 63});
        }
    }
    cells[tid] = mine;
    const int any_plus = __syncthreads_or(plus), any_minus = __syncthreads_or(minus);
    const int any_nan = __syncthreads_or(nan);
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid].add(cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0) {
        Acc sum = Acc(cells[0].scaled_down());
        if (any_plus)
            sum = Acc(INFINITY);
        if (any_minus)
            sum = Acc(-INFINITY);
        if (any_nan || (any_plus && any_minus))
            sum = Acc(NAN);
        out[blockIdx.x] = Op::finish(sum);
    }
}
