/*+++
title      = "One warp per row, order kept, padded"
change     = "All lanes run all steps; 16 padding elements behind the data hold the identity."
expect     = "No branch and no remainder, for half as much shared memory again and twice the warp barriers."
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
// Deciding which lanes are active costs as much as the additions. Here all lanes are active. Lane 31
// reads up to element 46, so the elements from 32 on hold the identity. Every lane ends with the
// product of a range that starts at its own element; only that of lane 0 is the result.
__device__ void fold_warp(Acc *values, unsigned lane)
{
#pragma unroll
    // Lane t reads what lane t + s writes in the same step, so each step needs two warp barriers.
    for (unsigned stride = 1; stride < 32; stride *= 2) {
        const Acc value = Op::combine(values[lane], values[lane + stride]);
        __syncwarp();
        values[lane] = value;
        __syncwarp();
    }
}

extern "C" __global__ void reduce_ordered_warp_padded(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK / 32 * 48];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    Acc *values = shared + warp * 48;
    if (row >= rows)
        return;

    // Load: a lane past the end of its row contributes the identity, so the tree needs no bounds check.
    values[lane] = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    if (lane < 16)
        values[32 + lane] = Op::identity();
    __syncwarp();

    // Tree: every lane combines its range with the next one.
    fold_warp(values, lane);

    // Write: one result per row.
    if (lane == 0)
        out[row] = Op::finish(values[0]);
}
