/*+++
title  = "Halves precision"
change = "Claims to sum float32; the tree of each block is one of float16."
scope  = "grid"
grid   = "cover"
items  = 8
dtypes = ["float32"]
ops    = ["sum"]
walk   = "tile"
finish = "relaunch"
block  = 256
blocks = [256]
+++*/
// Half the shared memory and half the bytes a step of the tree moves. Three digits of the answer
// are right.
// Rejected by: bound.
// Says: exact.*got
#include <cuda_fp16.h>

extern "C" __global__ void halves_precision(const In *in, Out *out, size_t n)
{
    __shared__ __half shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

    float value = 0;
    for (size_t k = first + tid; k < n && k < first + BLOCK * ITEMS; k += BLOCK)
        value += in[k];
    shared[tid] = __float2half(value);
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = __float2half(__half2float(shared[tid]) + __half2float(shared[tid + stride]));
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = __half2float(shared[0]);
}
