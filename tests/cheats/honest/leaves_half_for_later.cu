/*+++
title  = "Both halves"
change = "Each launch sums both halves, each into its own partial."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// The same, without anything left over.
extern "C" __global__ void leaves_half_for_later(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    __shared__ Acc halves[2];

    for (unsigned half = 0; half < 2; half++) {
        Acc value = Op::identity();
        for (size_t k = half * (n / 2) + tid; k < (half ? n : n / 2); k += BLOCK)
            value = Op::combine(value, Op::lift(in[k], k));
        shared[tid] = value;
        __syncthreads();
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();
        }
        if (tid == 0)
            halves[half] = shared[0];
        __syncthreads();
    }

    if (tid == 0)
        *out = Op::finish(Op::combine(halves[0], halves[1]));
}
