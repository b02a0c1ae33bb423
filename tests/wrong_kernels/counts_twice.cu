/*+++
title      = "Counts twice"
change     = "Blocks overlap by one element."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: sum.
extern "C" __global__ void counts_twice(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    if (tid == 0 && i > 0 && i < n)
        shared[tid] = Op::combine(shared[tid], Op::lift(in[i - 1], i - 1));
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
