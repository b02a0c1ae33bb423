/*+++
title  = "Doubles precision"
change = "The tree of each block is one of float64."
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
// More precise than it must be, and not taken for wrong.
extern "C" __global__ void halves_precision(const In *in, Out *out, size_t n)
{
    __shared__ double shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

    float value = 0;
    for (size_t k = first + tid; k < n && k < first + BLOCK * ITEMS; k += BLOCK)
        value += in[k];
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = shared[tid] + shared[tid + stride];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = (float)shared[0];
}
