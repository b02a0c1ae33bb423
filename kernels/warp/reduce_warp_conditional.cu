/*+++
title      = "One warp per row, conditional halving"
change     = "A warp reduces 32 elements in shared memory; at each step half as many lanes are active as before."
expect     = "No block barrier. Four bytes per lane in flight are too few to saturate the memory."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["warp_unroll", "no_bank_conflict"]
+++*/
// The smallest tree, for use inside larger kernels: one warp, 32 elements of shared memory. It was
// published with `volatile` and without barriers, because the lanes of a warp ran in lockstep. Since
// Volta they may diverge.
__device__ void fold_warp(Acc *values, unsigned lane)
{
#pragma unroll
    // Lanes t < s read elements t and t + s and write t. No lane writes what another lane reads in the
    // same step, so one warp barrier per step is enough.
    for (unsigned stride = 16; stride > 0; stride /= 2) {
        if (lane < stride)
            values[lane] = Op::combine(values[lane], values[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_warp_conditional(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    Acc *values = shared + warp * 32;
    if (row >= rows)
        return;

    // Load: a lane past the end of its row contributes the identity, so the tree needs no bounds check.
    values[lane] = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    __syncwarp();

    // Tree: the lower half of the lanes adds the values of the upper half.
    fold_warp(values, lane);

    // Write: one result per row.
    if (lane == 0)
        out[row] = Op::finish(values[0]);
}
