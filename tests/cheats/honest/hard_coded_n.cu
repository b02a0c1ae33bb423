/*+++
title      = "Whole rounds first"
change     = "Rounds that no element can miss need no bounds; the last one has them."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [256]
+++*/
// The same loop without a comparison of elements, for any n.
extern "C" __global__ void hard_coded_n(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t step = (size_t)gridDim.x * BLOCK;
    size_t k = (size_t)blockIdx.x * BLOCK + tid;

    Acc value = Op::identity();
#pragma unroll 8
    for (size_t round = 0; round < n / step; round++, k += step)
        value = Op::combine(value, Op::lift(in[k], k));
    if (k < n)
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
