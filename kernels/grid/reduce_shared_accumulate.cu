/*+++
title      = "Accumulate in shared memory"
change     = "1024 blocks take contiguous shares; each thread adds into its own cell of shared memory."
expect     = "One tree for a thousandth of the input. The cell costs nothing: the compiler keeps it in a register."
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
// V6 fixes the items of a thread, so trees and partials still grow with the input. Here the number of
// blocks is fixed instead, and each thread adds whatever its block's share brings: 128 elements at 2^25.
// The running value is the thread's cell of shared memory, where the tree finds it. No other thread
// looks before the barrier, so the compiler is free to hold it in a register until then, and does.
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

    // Load: elements past the end are left out; a thread with none brings the identity. Signed indices
    // cannot wrap, so the compiler counts the rounds and unrolls them, loads first.
    shared[tid] = Op::identity();
#pragma unroll 8
    for (long long k = begin + tid; k < (long long)end; k += BLOCK)
        shared[tid] = Op::combine(shared[tid], Op::lift(in[k], k));
    __syncthreads();

    // Tree: the lower half takes in the upper half, down to 64 partials.
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid < 32)
        fold_last_warp(shared, tid);

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
