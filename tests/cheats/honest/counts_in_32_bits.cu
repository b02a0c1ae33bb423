/*+++
title  = "Counts in 32 bits within a tile"
change = "An offset of 64 bits for the tile, indices of 32 within it."
scope  = "grid"
grid   = "cover"
items  = 8
walk   = "tile"
finish = "atomic"
block  = 256
blocks = [256]
+++*/
// The loop counts in 32 bits here, too, where nothing can outgrow them.
extern "C" __global__ void counts_in_32_bits(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);
    const unsigned held = n - first < BLOCK * ITEMS ? n - first : BLOCK * ITEMS;

    Acc value = Op::identity();
    for (unsigned k = tid; k < held; k += BLOCK)
        value = Op::combine(value, Op::lift(in[first + k], first + k));
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        Op::atomic(out, shared[0]);
}
