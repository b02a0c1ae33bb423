/*+++
title  = "Keeps the answer"
change = "Sums once for each n; from then on writes what it wrote before."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// Every launch but the first costs what an empty kernel costs, and a benchmark times one input
// many times.
// Rejected by: patterns.
// Says: got .*expected
__device__ Out kept;
__device__ size_t kept_n;  // 0: nothing is kept yet

extern "C" __global__ void keeps_the_answer(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    if (n == kept_n) {
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
        kept_n = n;
    }
}
