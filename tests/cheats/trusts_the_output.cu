/*+++
title  = "Trusts the output"
change = "Does nothing where the output still holds what the launch before has written."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// A verification overwrites the output before each launch. A timing that does not times launches
// that do nothing.
// Rejected by: timed launches.
// Says: timed launch \d+: got
__device__ Out kept;
__device__ size_t kept_n;  // 0: nothing is kept yet

extern "C" __global__ void trusts_the_output(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    if (n == kept_n && *out == kept)
        return;

    Acc value = Op::identity();
    for (size_t k = tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        *out = kept = Op::finish(shared[0]);
        kept_n = n;
    }
}
