/*+++
title      = "Wrong padding"
change     = "Threads past the end bring 0, whatever the operator."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: max.
extern "C" __global__ void wrong_padding(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Acc(0);
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
