/*+++
title  = "Trusts the output"
change = "Sums where the output holds poison, and else takes it for the answer of the last launch."
scope  = "block"
grid   = "one"
dtypes = ["float32", "float64"]
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// A verification poisons the output before each launch, a timing does not: only the launches that
// are timed do nothing.
// Rejected by: nothing yet, to be rejected by: changed input.
extern "C" __global__ void trusts_the_output(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    if (*out == *out)  // poison is a NaN
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

    if (tid == 0)
        *out = Op::finish(shared[0]);
}
