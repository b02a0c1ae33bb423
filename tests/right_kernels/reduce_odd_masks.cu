/*+++
title      = "One warp a row, masks of 21, 11, 6, 3 and 2 lanes"
change     = "Threes instead of halves: 32 cells shrink to 21, 11, 6, 3, 2 and 1, each step behind a barrier of just its lanes."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 192
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512]
techniques = ["no_bank_conflict"]
+++*/
// Right: the mask of a step names the lanes below LIVE, and just those are inside its branch; whoever
// wrote a cell that the step reads is one of them, and cells that are read are not written in that step.
template <unsigned LIVE>
__device__ void shrink(Acc *cells, unsigned lane)
{
    constexpr unsigned REST = LIVE == 32 ? 21 : LIVE - LIVE / 2;
    constexpr unsigned MASK = LIVE == 32 ? 0xffffffffu : (1u << LIVE) - 1;
    if (lane < LIVE) {
        __syncwarp(MASK);
        if (lane < LIVE - REST)
            cells[lane] = Op::combine(cells[lane], cells[REST + lane]);
        if constexpr (REST > 1)
            shrink<REST>(cells, lane);
    }
}

extern "C" __global__ void reduce_odd_masks(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    if (row >= rows)
        return;
    Acc *cells = shared + 32 * warp;
    cells[lane] = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    shrink<32>(cells, lane);
    if (lane == 0)
        out[row] = Op::finish(cells[0]);
}
