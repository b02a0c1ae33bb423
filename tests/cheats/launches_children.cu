/*+++
title  = "Launches children"
change = "Leaves the sum to a kernel that it launches itself and does not wait for."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 1024
blocks = [1024]
+++*/
// If the clock stops when the first kernel ends, its children run free of charge.
// Rejected by: compiler.
// Says: does not compile
__global__ void child(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

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

extern "C" __global__ void launches_children(const In *in, Out *out, size_t n)
{
    if (threadIdx.x == 0)
        child<<<1, BLOCK>>>(in, out, n);
}
