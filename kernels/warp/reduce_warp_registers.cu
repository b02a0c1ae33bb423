/*+++
title      = "One warp per row, registers only"
change     = "Shuffles of growing distance instead of shared memory; every lane gets the result."
expect     = "Five shuffles and a broadcast; no barrier, because a shuffle synchronises the lanes of its mask."
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
// A shuffle moves a register of lane t + s directly to lane t and synchronises the lanes of its mask,
// so neither shared memory nor barriers are needed. Distances grow, so lane 0 ends with the product of
// all lanes in order. A lane near the end gets its own value back and computes a value that is never
// used. The last shuffle sends the result to all lanes, for use inside a larger kernel.
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

    // Load: a lane past the end of its row contributes the identity, so the tree needs no bounds check.
    Acc value = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();

    // Tree: every lane combines its range with the next one.
    value = fold_warp(value);

    // Write: one result per row.
    if (lane == 0)
        out[row] = Op::finish(value);
}
