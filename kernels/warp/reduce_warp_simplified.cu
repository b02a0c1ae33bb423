/*+++
title      = "One warp per row, a single condition"
change     = "The lower 16 lanes run all steps; values that the upper ones of them compute are never used."
expect     = "Four conditions fewer. The warp barriers that become necessary today may cost what was gained."
after      = "reduce_warp_conditional"
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["warp_unroll", "no_bank_conflict", "no_divergence"]
+++*/
// Inactive lanes save a warp nothing, but deciding which lanes are active costs instructions. Here
// lanes 0 to 15 execute all steps, and only element 0 is used in the end.
__device__ void fold_warp(Acc *values, unsigned lane)
{
    if (lane < 16) {
#pragma unroll
        // Lane t reads element t + s while lane t + s writes it, so each step needs two warp barriers:
        // between reading and writing, and before the next read. Their mask names the 16 lanes here.
        for (unsigned stride = 16; stride > 0; stride /= 2) {
            const Acc value = Op::combine(values[lane], values[lane + stride]);
            __syncwarp(0x0000ffffu);
            values[lane] = value;
            __syncwarp(0x0000ffffu);
        }
    }
}

extern "C" __global__ void reduce_warp_simplified(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t row = (size_t)blockIdx.x * (BLOCK / 32) + warp;
    Acc *values = shared + warp * 32;
    if (row >= rows)
        return;

    // Load: a lane past the end of its row contributes the identity, so the tree needs no bounds check.
    values[lane] = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    __syncwarp();

    // Tree: the lower half of the lanes adds the values of the upper half.
    fold_warp(values, lane);

    // Write: one result per row.
    if (lane == 0)
        out[row] = Op::finish(values[0]);
}
