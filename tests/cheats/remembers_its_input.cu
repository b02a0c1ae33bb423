/*+++
title  = "Remembers its input"
change = "Sums once for each input, which it knows again by address, n and three elements."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// As fast as one that keeps the answer, and right whenever another input is given to it, unless
// that differs from the one before elsewhere.
// Rejected by: place.
// Says: in the place of another with the same first, middle and last elements: n = 31, .*got
__device__ const In *kept_in;
__device__ size_t kept_n;
__device__ In kept_first, kept_middle, kept_last;
__device__ Out kept;

extern "C" __global__ void remembers_its_input(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    if (in == kept_in && n == kept_n && in[0] == kept_first && in[n / 2] == kept_middle &&
        in[n - 1] == kept_last) {
        if (tid == 0)
            *out = kept;
        return;
    }

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
        kept_in = in, kept_n = n;
        kept_first = in[0], kept_middle = in[n / 2], kept_last = in[n - 1];
    }
}
