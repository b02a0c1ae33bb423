/*+++
title  = "Declares a long chain"
change = "Blocks fold in float16; the header says that elements are added up one by one."
scope  = "grid"
grid   = "cover"
items  = 8
dtypes = ["float32"]
ops    = ["sum"]
walk   = "element"
finish = "relaunch"
block  = 256
blocks = [256]
+++*/
// How far a right answer may be off is computed from the header, and a header that says more roundings
// than there are allows for more. Patterns without rounding do not help: float16 holds their partials.
// Rejected by: values that need all bits.
// Says: exact.*got
#include <cuda_fp16.h>

template <class T>
__device__ float folded(T *shared, float value)
{
    const unsigned tid = threadIdx.x;
    shared[tid] = T(value);
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = T(float(shared[tid]) + float(shared[tid + stride]));
        __syncthreads();
    }
    return float(shared[0]);
}

extern "C" __global__ void declares_a_long_chain(const In *in, Out *out, size_t n)
{
    __shared__ float floats[BLOCK];
    __shared__ __half halves[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

    float value = 0;
    for (size_t k = first + tid; k < n && k < first + BLOCK * ITEMS; k += BLOCK)
        value += in[k];
    value = gridDim.x > 1 ? folded(halves, value) : folded(floats, value);

    if (tid == 0)
        out[blockIdx.x] = value;
}
