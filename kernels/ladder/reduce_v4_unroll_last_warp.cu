/*+++
title      = "Unroll the last warp"
change     = "One warp reduces the last 64 partials without block barriers."
expect     = "Six block barriers fewer, and seven of eight warps finish six steps earlier."
after      = "reduce_v3_add_during_load"
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 2
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "first_add", "warp_unroll"]
+++*/
// The last six steps of v3 need one warp, yet all warps go to their barriers. Here the first warp
// does these steps alone. Harris used `volatile`, because in 2007 the lanes of a warp ran in
// lockstep. Since Volta they may diverge, so warp barriers are needed. Harris 2007, kernel 5.
__device__ void fold_last_warp(Acc *shared, unsigned tid)
{
    Acc value = shared[tid];
    // Lane t reads what lane t + s writes in the same step, so each step needs two warp barriers: one
    // between reading and writing, one before the next read. All 32 lanes write; values written by
    // lanes t >= s are never used.
    for (unsigned stride = 32; stride > 0; stride /= 2) {
        value = Op::combine(value, shared[tid + stride]);
        __syncwarp();
        shared[tid] = value;
        __syncwarp();
    }
}

extern "C" __global__ void reduce_v4_unroll_last_warp(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (blockDim.x * 2) + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    const size_t k = i + blockDim.x;
    const Acc left = i < n ? Op::lift(in[i], i) : Op::identity();
    const Acc right = k < n ? Op::lift(in[k], k) : Op::identity();
    shared[tid] = Op::combine(left, right);
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half, down to 64 partials.
    for (unsigned stride = blockDim.x / 2; stride > 32; stride /= 2) {
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
