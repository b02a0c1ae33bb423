/*+++
title      = "One warp per row, order kept"
change     = "The stride grows instead of halving, so each active lane combines its range with the next one."
expect     = "The same five steps with as many active lanes; a remainder decides which lanes are active."
after      = "reduce_warp_conditional"
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
order      = "kept"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["warp_unroll", "order_kept"]
+++*/
// Strides that halve pair element 0 with element 16, which changes the order of operands. With strides
// 1, 2, 4, 8, 16 lane t holds the product of elements t to t + s - 1 and combines it with that of the
// next s elements: the order is kept, only the grouping changes.
__device__ void fold_warp(Acc *values, unsigned lane)
{
#pragma unroll
    // Lane t writes element t alone, a multiple of 2s, which no other lane reads in the same step. So
    // one warp barrier per step is enough.
    for (unsigned stride = 1; stride < 32; stride *= 2) {
        if (lane % (2 * stride) == 0)
            values[lane] = Op::combine(values[lane], values[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_ordered_warp(const In *in, Out *out, size_t n, size_t rows)
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

    // Tree: the left operand is at a multiple of 2s.
    fold_warp(values, lane);

    // Write: one result per row.
    if (lane == 0)
        out[row] = Op::finish(values[0]);
}
