/*+++
title      = "Last warp alone, one item per thread"
change     = "One warp does the last six steps of the tree without block barriers; loading is unchanged."
expect     = "Six block barriers fewer, but half of the threads still only load: less gain than v3 and v4 together."
after      = "reduce_v2_no_bank_conflict"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll"]
+++*/
// In v2 all warps go to the barriers of steps that need only one warp. Here that warp reduces the
// last 64 partials alone.
__device__ void fold_last_warp(Acc *shared, unsigned tid)
{
    // Lane t reads what lane t + s writes in the same step, so each step needs two warp barriers: one
    // between reading and writing, one before the next read. Values written by lanes t >= s are
    // never used.
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

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
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
