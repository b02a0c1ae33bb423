/*+++
title      = "One warp a row, whole blocks only"
change     = "The bounds check is done once for the block, so no warp needs one of its own."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
order      = "kept"
block      = 128
blocks     = [32, 64, 128, 256, 512]
techniques = ["shuffle", "order_kept"]
+++*/
// Fault: a block that has more warps than rows left returns as a whole. If the rows are no multiple of
// BLOCK / 32, the last ones are never written.
constexpr unsigned WARPS = BLOCK / 32;

extern "C" __global__ void warp_rows_whole_blocks(const In *in, Out *out, size_t n, size_t rows)
{
    if ((size_t)(blockIdx.x + 1) * WARPS > rows)
        return;
    const unsigned lane = threadIdx.x % 32;
    const size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;

    Acc value = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
#pragma unroll
    for (unsigned d = 1; d < 32; d *= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (lane == 0)
        out[row] = Op::finish(value);
}
