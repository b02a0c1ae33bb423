/*+++
title      = "With clock reads, assertions and a print"
change     = "Each block times itself by clock64 into a device variable, asserts its launch shape and prints if that is broken."
scope      = "grid"
grid       = "fixed"
fixed_grid = 36
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// Right: the clock goes nowhere but into a maximum that no kernel reads, and neither the assertion nor the
// print can come about when the block has BLOCK threads, which it always has.
#include <cassert>
#include <cstdio>

__device__ unsigned long long longest_block_ticks;

extern "C" __global__ void reduce_watched_blocks(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const long long started = clock64();
    const unsigned tid = threadIdx.x;
    assert(blockDim.x == BLOCK && blockIdx.x < gridDim.x);

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride) {
            assert(tid + stride < BLOCK);
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        }
        __syncthreads();
    }

    if (tid == 0) {
        out[blockIdx.x] = Op::finish(shared[0]);
        if (blockDim.x != BLOCK || blockDim.y != 1)
            printf("block %u has %u threads instead of %u\n", blockIdx.x, blockDim.x, BLOCK);
        atomicMax(&longest_block_ticks, (unsigned long long)(clock64() - started));
    }
}
