/*+++
title  = "Reads all"
change = "Reads all of each tile."
scope  = "grid"
grid   = "cover"
items  = 16
dtypes = ["float32"]
ops    = ["sum"]
walk   = "tile"
finish = "atomic"
block  = 256
blocks = [256]
+++*/
// Sixteen elements a thread, a block apart, all of them read.
extern "C" __global__ void samples(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

    Acc value = 0;
    for (size_t k = first + tid; k < n && k < first + BLOCK * ITEMS; k += BLOCK)
        value += in[k];
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
