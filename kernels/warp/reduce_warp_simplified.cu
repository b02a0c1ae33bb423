/*+++
title      = "One warp a row, a single condition"
change     = "The lower 16 lanes go through all steps; what the upper ones of them compute is never used."
expect     = "Four conditions fewer. Today the barriers that then become necessary may cost what was won."
after      = "reduce_warp_conditional"
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["warp_unroll", "no_bank_conflict", "no_divergence"]
+++*/
// A warp saves nothing by letting lanes rest, but it pays for asking which may. Here lanes 0 to 15 work
// to the end and only cell 0 counts in the end. Now lane t reads cell t + s while lane t + s writes it,
// so each step needs __syncwarp() twice: between reading and writing, and before the next read. Their
// mask names the 16 lanes that are there.
__device__ void fold_warp(Acc *cells, unsigned lane)
{
    if (lane < 16) {
#pragma unroll
        for (unsigned stride = 16; stride > 0; stride /= 2) {
            const Acc value = Op::combine(cells[lane], cells[lane + stride]);
            __syncwarp(0x0000ffffu);
            cells[lane] = value;
            __syncwarp(0x0000ffffu);
        }
    }
}

extern "C" __global__ void reduce_warp_simplified(const In *in, Out *out, size_t n, size_t rows)
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
