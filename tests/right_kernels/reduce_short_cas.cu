/*+++
title      = "Maximum by 16-bit compare-and-swap"
change     = "A block's maximum lives in one 16-bit cell, raised by compare-and-swap of an unsigned short."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "atomic"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 512, 1024]
techniques = ["multi_add", "atomic", "shared_accumulation"]
dtypes     = ["float16"]
ops        = ["max"]
+++*/
// Right: the swap compares bits, so a NaN in the cell ends the loop and never makes it endless; whoever
// fails starts again from what it found, and somebody else has raised the cell each time one fails.
#include <cuda_fp16.h>

__device__ void raise_cell(unsigned short *cell, __half value)
{
    unsigned short found = atomicCAS(cell, (unsigned short)0, (unsigned short)0), expected;
    do {
        expected = found;
        const __half now = __ushort_as_half(expected);
        if (__hisnan(now) || __hge(now, value))
            return;
        found = atomicCAS(cell, expected, __half_as_ushort(value));
    } while (found != expected);
}

extern "C" __global__ void reduce_short_cas(const In *in, Out *out, size_t n)
{
    __shared__ unsigned short best;
    if (threadIdx.x == 0)
        best = 0xfc00;  // minus infinity
    __syncthreads();

    __half mine = __ushort_as_half((unsigned short)0xfc00);
    const size_t begin = (size_t)blockIdx.x * BLOCK * ITEMS + threadIdx.x;
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * BLOCK;
        if (k < n && !__hisnan(mine) && !__hle(in[k], mine))
            mine = in[k];
    }
    raise_cell(&best, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        Op::atomic(out, Acc(__half2float(__ushort_as_half(best))));
}
