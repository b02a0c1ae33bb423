/*+++
title      = "Last warp alone, one element a thread"
change     = "The last six steps of the tree belong to one warp, without block barriers; loading stays as it was."
expect     = "Six block barriers fewer, but half the threads still only load: less than V3 and V4 together."
after      = "reduce_v2_no_bank_conflict"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll"]
+++*/
// In V2 all warps march to a barrier in steps that concern one warp only. Here that warp takes the
// last 64 partials alone. Lanes may drift apart, so every step needs __syncwarp() twice: between
// reading and writing, for lane t reads what lane t + s writes in the same step, and before the next
// read. What lanes above the stride write is never used again.
__device__ void fold_last_warp(Acc *shared, unsigned tid)
{
    for (unsigned stride = 32; stride > 0; stride /= 2) {
        const Acc value = Op::combine(shared[tid], shared[tid + stride]);
        __syncwarp();
        shared[tid] = value;
        __syncwarp();
    }
}

extern "C" __global__ void reduce_warp_tail(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
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
