/*+++
title      = "One warp a row, conditional halving"
change     = "A warp folds 32 elements in shared memory; at each step half as many lanes work as before."
expect     = "No block barrier at all. Four bytes a lane in flight are too few to fill the memory system."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["warp_unroll", "no_bank_conflict"]
+++*/
// The smallest tree, as a step inside larger kernels: one warp, 32 cells of shared memory. It was once
// written with `volatile` and no barrier, since a warp ran in lockstep; today lanes may drift apart. In
// a step lane t < s reads cells t and t + s and writes t: nobody writes what another reads, so one
// __syncwarp() a step will do, before the next step reads.
__device__ void fold_warp(Acc *cells, unsigned lane)
{
#pragma unroll
    for (unsigned stride = 16; stride > 0; stride /= 2) {
        if (lane < stride)
            cells[lane] = Op::combine(cells[lane], cells[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_warp_conditional(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    Acc *cells = shared + warp * 32;
    if (row >= rows)
        return;

    // Load: a lane past the end of its row brings the identity, so the tree needs no bounds.
    cells[lane] = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    __syncwarp();

    // Tree: the lower half takes in the upper half.
    fold_warp(cells, lane);

    // Write: one answer a row.
    if (lane == 0)
        out[row] = Op::finish(cells[0]);
}
