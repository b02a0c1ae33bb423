/*+++
title  = "One warp a row, masks that shrink"
change = "Each shuffle names only those lanes whose values still matter."
scope  = "warp"
grid   = "warp_per_row"
walk   = "lane"
finish = "none"
block  = 128
blocks = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
+++*/
// Fault: all 32 lanes execute every shuffle, and from the second on the upper ones are not in the mask
// that they pass, which is undefined behaviour; a condition on the lane would have been needed with it.
// The author took the mask for a choice of whose results count. Today's hardware lets a converged warp
// through; a split one may hang or exchange wrong values.
__device__ Acc fold_lanes(Acc value)
{
    unsigned mask = 0xffffffffu;
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        value = Op::combine(value, __shfl_down_sync(mask, value, offset));
        mask >>= offset;
    }
    return value;
}

extern "C" __global__ void reduce_warp_shrinking_mask(const In *in, Out *out, size_t n, size_t rows)
{
    const unsigned lane = threadIdx.x % 32;
    const size_t row = ((size_t)blockIdx.x * BLOCK + threadIdx.x) / 32;
    if (row >= rows)
        return;

    Acc value = Op::identity();
    if (lane < n)
        value = Op::lift(in[row * n + lane], lane);
    value = fold_lanes(value);
    if (lane == 0)
        out[row] = Op::finish(value);
}
