/*+++
title      = "Accumulate in shared memory"
change     = "1024 blocks take contiguous shares; each thread accumulates in its own element of shared memory."
expect     = "1024 trees, however large the input. The compiler keeps each accumulator in a register."
after      = "reduce_v6_multi_add"
scope      = "grid"
grid       = "fixed"
fixed_grid = 1024
walk       = "contiguous"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "template_unroll", "multi_add", "shared_accumulation"]
+++*/
// v6 fixes the items per thread, so the number of trees and partials grows with the input. Here the
// number of blocks is fixed, and each thread adds all elements of its block's share: 128 per thread
// at 2^25. The accumulator is the thread's element of shared memory, where the tree reads it. No other
// thread reads it before the barrier, so the compiler keeps it in a register until then.
__device__ void fold_last_warp(Acc *shared, unsigned tid)
{
#pragma unroll
    for (unsigned stride = 32; stride > 0; stride /= 2) {
        const Acc value = Op::combine(shared[tid], shared[tid + stride]);
        __syncwarp();
        shared[tid] = value;
        __syncwarp();
    }
}

extern "C" __global__ void reduce_shared_accumulate(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t share = (n + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    const size_t end = min(begin + share, n);

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    shared[tid] = Op::identity();
#pragma unroll 8
    for (long long k = begin + tid; k < (long long)end; k += BLOCK)
        shared[tid] = Op::combine(shared[tid], Op::lift(in[k], k));
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half, down to 64 partials.
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid < 32)
        fold_last_warp(shared, tid);

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
