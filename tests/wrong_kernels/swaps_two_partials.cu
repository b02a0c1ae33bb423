/*+++
title      = "Swaps two partials"
change     = "Claims to keep the order, but the halving tree meets operand 0 with operand s before 1."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
order      = "kept"
block      = 256
blocks     = [256]
+++*/
// Rejected by: matmul, affine.
extern "C" __global__ void swaps_two_partials(const In *in, Out *out, size_t n)
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

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
