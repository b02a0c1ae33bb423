/*+++
title      = "Zeroes inside"
change     = "The first block sets the output to 0, and no other waits for it."
scope      = "grid"
grid       = "fixed"
fixed_grid = 24
ops        = ["sum"]
walk       = "grid_stride"
finish     = "none"
block      = 256
blocks     = [256]
+++*/
// Saves the launch that sets the output beforehand, 1 to 2 us. The first block mostly is the first
// to come so far, so the answer mostly is right.
// Rejected by: hazard.
// Says: data race in global memory
extern "C" __global__ void zeroes_inside(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    if (blockIdx.x == 0 && tid == 0)
        *out = Op::identity();
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
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
