/*+++
title      = "Counts in 32 bits"
change     = "Indices are int."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [256]
+++*/
// Indices of 64 bits take two registers and two instructions each. Right up to 2^31 elements,
// where they become negative.
// Rejected by: far.
// Says: one block alone: n = 4296015872
extern "C" __global__ void counts_in_32_bits(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    for (int k = blockIdx.x * BLOCK + tid; k < (int)n; k += gridDim.x * BLOCK)
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
