/*+++
title      = "One warp a row, order kept, padded"
change     = "All lanes go through all steps; 16 cells behind the data hold the identity for those that reach past it."
expect     = "No branch and no remainder, half as much shared memory again, twice the warp barriers."
after      = "reduce_ordered_warp"
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
order      = "kept"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "order_kept", "padding"]
+++*/
// Asking which lanes may work costs as much as the work. Here all do, and since lane 31 reaches as far
// as cell 47, the cells from 32 on hold the identity. Every lane ends with the product of a range that
// begins at its own cell; only cell 0's is the answer. Lane t reads what lane t + s writes in the same
// step, so each step needs __syncwarp() twice.
__device__ void fold_warp(Acc *cells, unsigned lane)
{
#pragma unroll
    for (unsigned stride = 1; stride < 32; stride *= 2) {
        const Acc value = Op::combine(cells[lane], cells[lane + stride]);
        __syncwarp();
        cells[lane] = value;
        __syncwarp();
    }
}

extern "C" __global__ void reduce_ordered_warp_padded(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK / 32 * 48];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    Acc *cells = shared + warp * 48;
    if (row >= rows)
        return;

    // Load: a lane past the end of its row brings the identity, so the tree needs no bounds.
    cells[lane] = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    if (lane < 16)
        cells[32 + lane] = Op::identity();
    __syncwarp();

    // Tree: every lane takes in the range to its right.
    fold_warp(cells, lane);

    // Write: one answer a row.
    if (lane == 0)
        out[row] = Op::finish(cells[0]);
}
