/*+++
title      = "A warp a row, the last one short"
change     = "Whole warps take a row each; the bound is that of the block's first row."
scope      = "rows"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 256
blocks     = [256]
+++*/
// Fault: the bound counts rows from 1, so the last row is written by nobody.
extern "C" __global__ void rows_last_warp_lost(const In *in, Out *out, size_t n, size_t rows)
{
    const unsigned lane = threadIdx.x % 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (row + 1 >= rows && row % (BLOCK / 32) == BLOCK / 32 - 1)
        return;
    if (row >= rows)
        return;
    Acc value = Op::identity();
    for (size_t k = lane; k < n; k += 32)
        value = Op::combine(value, Op::lift(in[row * n + k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (lane == 0)
        out[row] = Op::finish(value);
}
