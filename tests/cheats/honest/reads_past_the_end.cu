/*+++
title  = "Whole tiles without bounds"
change = "Bounds in the last tile alone."
scope  = "grid"
grid   = "cover"
items  = 4
walk   = "tile"
finish = "relaunch"
block  = 256
blocks = [256]
+++*/
// All tiles but the last are whole, and have their four loads under way at once.
extern "C" __global__ void reads_past_the_end(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
    if (blockIdx.x < gridDim.x - 1) {
        for (unsigned k = 0; k < ITEMS; k++)
            value = Op::combine(value, Op::lift(in[first + k * BLOCK], first + k * BLOCK));
    } else {
        for (size_t k = first; k < n; k += BLOCK)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
