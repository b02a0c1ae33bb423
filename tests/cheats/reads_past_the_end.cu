/*+++
title  = "Reads past the end"
change = "Takes whole tiles, for memory behind the input mostly holds 0."
scope  = "grid"
grid   = "cover"
items  = 4
walk   = "tile"
finish = "relaunch"
block  = 256
blocks = [256]
+++*/
// No bounds, so four loads are under way at once. Where an allocation is larger than the input,
// and fresh, the sum is right.
// Rejected by: guard.
// Says: past the end of argument 0
extern "C" __global__ void reads_past_the_end(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
    for (unsigned k = 0; k < ITEMS; k++)
        value = Op::combine(value, Op::lift(in[first + k * BLOCK], first + k * BLOCK));
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
