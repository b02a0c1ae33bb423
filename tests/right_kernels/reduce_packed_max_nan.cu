/*+++
title      = "Maxima of half pairs"
change     = "float16 and bfloat16 maxima are formed two at a time in packed registers; only a block's result is widened."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
min_cc     = "8.0"
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride", "atomic"]
dtypes     = ["float16", "bfloat16"]
ops        = ["max"]
+++*/
// Right: a maximum is one of its operands, so nothing is rounded in 16 bits; the _nan form lets a NaN win
// as the operator does. Pairs begin at the first address that is a multiple of 4.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> struct Pair;
template <> struct Pair<__half> { using type = __half2; };
template <> struct Pair<__nv_bfloat16> { using type = __nv_bfloat162; };

extern "C" __global__ void reduce_packed_max_nan(const In *in, Out *out, size_t n)
{
    using Two = Pair<In>::type;
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t head = min((size_t)((uintptr_t)in % 4 / 2), n), pairs = (n - head) / 2;
    const Two *two = (const Two *)(in + head);

    Two best(In(-INFINITY), In(-INFINITY));
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < pairs; k += (size_t)gridDim.x * BLOCK)
        best = __hmax2_nan(best, two[k]);
    Acc value = Op::combine(Acc(float(best.x)), Acc(float(best.y)));
    if (blockIdx.x == 0 && tid == 0) {
        if (head > 0)
            value = Op::combine(value, Op::lift(in[0], 0));
        if (head + 2 * pairs < n)
            value = Op::combine(value, Op::lift(in[n - 1], n - 1));
    }

    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        Op::atomic(out, shared[0]);
}
