/*+++
title      = "Unroll the last warp"
change     = "From 64 partials on, one warp finishes alone, without block barriers."
expect     = "Six block barriers fewer, and seven of eight warps are done six steps earlier."
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
// The last six steps of V3 concern one warp only, yet all warps march to their barriers. Here the
// first warp takes them alone. In 2007 a warp ran in lockstep and `volatile` was enough; since Volta
// lanes may drift apart, and every step needs __syncwarp() twice: once between reading and writing,
// for lane t reads what lane t + s writes in the same step, and once before the next read. All 32
// lanes write; what lanes above the stride write is never used again. Harris 2007, kernel 5.
__device__ void fold_last_warp(Acc *shared, unsigned tid)
{
    Acc value = shared[tid];
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

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    const size_t k = i + blockDim.x;
    const Acc left = i < n ? Op::lift(in[i], i) : Op::identity();
    const Acc right = k < n ? Op::lift(in[k], k) : Op::identity();
    shared[tid] = Op::combine(left, right);
    __syncthreads();

    // Tree: the lower half takes in the upper half, down to 64 partials.
    for (unsigned stride = blockDim.x / 2; stride > 32; stride /= 2) {
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
