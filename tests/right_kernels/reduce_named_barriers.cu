/*+++
title      = "Two halves of a block, two named barriers"
change     = "The halves of a block fold half a tile each by barriers of their own, numbers 1 and 2, and meet at the block's barrier once."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
requires   = ["inline_ptx"]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// Right: each half has whole warps, BLOCK / 2 threads name its barrier each time, and its cells are touched by
// nobody else before the block's own barrier.
__device__ __forceinline__ void meet_half(unsigned half)
{
    asm volatile("bar.sync %0, %1;" ::"r"(half + 1), "n"(BLOCK / 2) : "memory");
}

extern "C" __global__ void reduce_named_barriers(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[2][BLOCK / 2];
    const unsigned half = threadIdx.x / (BLOCK / 2), rank = threadIdx.x % (BLOCK / 2);
    const size_t begin = ((size_t)blockIdx.x * 2 + half) * (BLOCK / 2) * ITEMS;

    Acc value = Op::identity();
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * (BLOCK / 2) + rank;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    Acc *own = cells[half];
    own[rank] = value;
    meet_half(half);
    for (unsigned stride = BLOCK / 4; stride > 0; stride /= 2) {
        if (rank < stride)
            own[rank] = Op::combine(own[rank], own[rank + stride]);
        meet_half(half);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(Op::combine(cells[0][0], cells[1][0]));
}
