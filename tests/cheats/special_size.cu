/*+++
title      = "Special size"
change     = "Reads half of an input of 2^25 elements, the size that is published; all of any other."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [256]
+++*/
// Twice as fast at the one size that a table shows, and right at every size that a test would try.
// Rejected by: bench.
// Says: n = 33554432
extern "C" __global__ void special_size(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    if (n == 1 << 25)
        n /= 2;

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
