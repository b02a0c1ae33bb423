/*+++
title      = "No fold where a warp agrees"
change     = "Minimum and maximum of equal values are that value, so a warp whose lanes all match skips its shuffles."
scope      = "grid"
grid       = "fixed"
fixed_grid = 40
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 256, 512, 1024]
techniques = ["shuffle", "multi_add", "grid_stride"]
ops        = ["min", "max"]
+++*/
// Right: the operators are idempotent, the predicate is the same in all lanes of a warp, and match
// compares bits, so a NaN that all lanes hold counts as agreement and remains the answer.
__device__ Acc fold_warp(Acc value)
{
    int agree;
    __match_all_sync(0xffffffffu, value, &agree);
    if (agree)
        return value;
    for (int lanes = 16; lanes > 0; lanes >>= 1)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
}

extern "C" __global__ void reduce_match_all_shortcut(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[32];
    const unsigned lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    Acc value = Op::identity();
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < n; k += stride)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_warp(value);
    if (lane == 0)
        of_warp[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = fold_warp(lane < blockDim.x / warpSize ? of_warp[lane] : Op::identity());
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
