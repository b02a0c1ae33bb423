/*+++
title  = "Adds to the identity"
change = "The header says that the output must hold the identity, so it is set, and that is timed."
scope  = "grid"
grid   = "cover"
ops    = ["sum"]
walk   = "tile"
finish = "atomic"
block  = 256
blocks = [256]
+++*/
// The same text; its header differs.
extern "C" __global__ void adds_to_what_it_finds(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        Op::atomic(out, shared[0]);
}
