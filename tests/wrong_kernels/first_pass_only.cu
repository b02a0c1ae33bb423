/*+++
title      = "First pass only"
change     = "Only the first block's partial is the answer."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "none"
block      = 256
blocks     = [256]
+++*/
// Rejected by: sum.
extern "C" __global__ void first_pass_only(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (i == 0)
        out[0] = Op::finish(shared[0]);
}
