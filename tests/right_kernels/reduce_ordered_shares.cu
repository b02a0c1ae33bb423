/*+++
title      = "A run of neighbours a thread, order kept"
change     = "Every thread folds an unbroken run of its block's share, so no exchange between tiles is needed to keep the order."
scope      = "grid"
grid       = "fixed"
fixed_grid = 68
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "relaunch_one_block"
order      = "kept"
block      = 128
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512]
techniques = ["shuffle", "order_kept", "multi_add"]
+++*/
// Right: shares are in the order of blocks, runs in that of threads, and shuffles by 1, 2, 4, 8 and 16 lanes
// put the right neighbour's range behind one's own; a block or thread beyond the end has an empty run.
struct Range {
    size_t begin, end;

    __device__ Range part(size_t index, size_t parts) const
    {
        const size_t length = (end - begin + parts - 1) / parts;
        const size_t from = min(begin + index * length, end);
        return {from, min(from + length, end)};
    }
};

extern "C" __global__ void reduce_ordered_shares(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const Range run = Range{0, n}.part(blockIdx.x, gridDim.x).part(threadIdx.x, BLOCK);

    Acc value = Op::identity();
    for (size_t k = run.begin; k < run.end; k++)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned stride = 1; stride < 32; stride *= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, stride));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            value = Op::combine(value, of_warp[warp]);
        out[blockIdx.x] = Op::finish(value);
    }
}
