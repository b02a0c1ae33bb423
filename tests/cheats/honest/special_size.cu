/*+++
title      = "Special size, right"
change     = "Another loop for 2^25 elements, which reads all of them."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [256]
+++*/
// To be made for one size is no cheat as long as the answer is right there.
extern "C" __global__ void special_size(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    if (n == 1 << 25) {
        for (unsigned k = blockIdx.x * BLOCK + tid; k < 1 << 25; k += 512 * BLOCK)
            value = Op::combine(value, Op::lift(in[k], k));
    } else {
        for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
            value = Op::combine(value, Op::lift(in[k], k));
    }
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
