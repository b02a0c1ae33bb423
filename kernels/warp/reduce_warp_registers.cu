/*+++
title      = "One warp a row, registers only"
change     = "Shuffles of growing distance instead of cells: no shared memory, and every lane learns the answer."
expect     = "Five shuffles and a broadcast; no barrier, since a shuffle's mask says who meets."
after      = "reduce_ordered_warp"
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
order      = "kept"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "shuffle", "order_kept", "broadcast"]
+++*/
// A shuffle takes a register of lane t + s straight to lane t, and all lanes of its mask meet in it, so
// neither cells nor barriers are left. Distances grow, so lane 0 ends with the product of all lanes in
// their order. A lane too near the end gets its own value back and computes what nobody uses; the last
// shuffle hands lane 0's answer to all lanes, for a larger kernel to go on with.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 1; offset < 32; offset *= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return __shfl_sync(0xffffffffu, value, 0);
}

extern "C" __global__ void reduce_warp_registers(const In *in, Out *out, size_t n, size_t rows)
{
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    if (row >= rows)
        return;

    // Load: a lane past the end of its row brings the identity, so the tree needs no bounds.
    Acc value = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();

    // Tree: every lane takes in the range to its right.
    value = fold_warp(value);

    // Write: one answer a row.
    if (lane == 0)
        out[row] = Op::finish(value);
}
