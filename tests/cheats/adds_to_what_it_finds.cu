/*+++
title  = "Adds to what it finds"
change = "Nobody sets the output to 0: fresh memory mostly holds it."
scope  = "grid"
grid   = "cover"
ops    = ["sum"]
walk   = "tile"
finish = "none"
block  = 256
blocks = [256]
+++*/
// Saves the launch that sets the output beforehand, 1 to 2 us, and is right once, in memory that
// happens to hold 0.
// Rejected by: poison.
// Says: n = 1, .*got
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
