/*+++
title  = "Leaves half for later"
change = "Each launch sums one half and adds what the one before made of the other."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// Half the loads a launch. On an input that stays the same every answer but the first is right.
// Rejected by: patterns.
// Says: got .*expected
__device__ Acc halves[2];
__device__ unsigned launches;

extern "C" __global__ void leaves_half_for_later(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const unsigned half = launches % 2;

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

    if (tid == 0) {
        halves[half] = shared[0];
        launches++;
        *out = Op::finish(Op::combine(halves[0], halves[1]));
    }
}
