/*+++
title      = "One warp a row, from right to left, squeezed by fns"
change     = "Elements sit in a row's last lanes; each lane finds by fns whose value it takes, so the row moves to lane 0."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
order      = "kept"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["warp_unroll", "shuffle", "order_kept"]
+++*/
// Right: rank r takes the lane of the ballot's bit r, which holds element r, and lanes beyond the row the
// identity; lane t at stride s then holds elements t to t + 2s - 1 in order, wherever t is a multiple of 2s.
extern "C" __global__ void reduce_nth_set_lane(const In *in, Out *out, size_t n, size_t rows)
{
    constexpr unsigned ALL = 0xffffffffu;
    const unsigned lane = threadIdx.x & 31u;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (row >= rows)
        return;

    const unsigned gap = 32 - (unsigned)n;
    const bool holds = lane >= gap;
    Acc value = holds ? Op::lift(in[row * n + (lane - gap)], lane - gap) : Op::identity();

    const unsigned holders = __ballot_sync(ALL, holds);
    const bool takes = lane < __popc(holders);
    const unsigned from = takes ? __fns(holders, 0, (int)lane + 1) : lane;
    const Acc moved = __shfl_sync(ALL, value, (int)from);
    value = takes ? moved : Op::identity();

    for (unsigned stride = 1; stride < 32; stride <<= 1)
        value = Op::combine(value, __shfl_down_sync(ALL, value, stride));
    if (lane == 0)
        out[row] = Op::finish(value);
}
