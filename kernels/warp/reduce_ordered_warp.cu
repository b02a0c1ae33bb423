/*+++
title      = "One warp a row, order kept"
change     = "The stride grows instead of halving, so each lane that works takes in its right neighbour's range."
expect     = "The same five steps with as many lanes at work in each; which ones is a matter of the remainder."
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
// Halving strides pair cell 0 with cell 16, so operands change places. With strides 1, 2, 4, 8, 16 lane
// t holds the product of cells t to t + s - 1 and takes in that of the next s: only brackets move. Lane
// t writes cell t alone, a multiple of 2s, and nobody else reads it in that step, so one __syncwarp() a
// step will do.
__device__ void fold_warp(Acc *cells, unsigned lane)
{
#pragma unroll
    for (unsigned stride = 1; stride < 32; stride *= 2) {
        if (lane % (2 * stride) == 0)
            cells[lane] = Op::combine(cells[lane], cells[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_ordered_warp(const In *in, Out *out, size_t n, size_t rows)
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

    // Tree: left operand at a multiple of 2s.
    fold_warp(cells, lane);

    // Write: one answer a row.
    if (lane == 0)
        out[row] = Op::finish(cells[0]);
}
