/*+++
title  = "Counts launches"
change = "From the 50th launch for one n on it does nothing where the output still holds an answer."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// A verification has few launches of one size, and a timing has hundreds: those do nothing, and what
// they leave is the answer of an earlier launch, so it is right.
// Rejected by: timed launches.
// Says: timed launch \d+: got
__device__ Out kept;
__device__ size_t kept_n;
__device__ unsigned launches;

extern "C" __global__ void counts_launches(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    if (n == kept_n && launches >= 50 && *out == kept)
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
        launches = n == kept_n ? launches + 1 : 1;
        kept_n = n;
    }
}
