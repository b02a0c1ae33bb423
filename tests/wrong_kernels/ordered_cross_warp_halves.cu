/*+++
title      = "Ordered warps, then a tree of warps"
change     = "Inside a warp distances grow, so order is kept; the few warps are folded by a tree."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
order      = "kept"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "order_kept", "no_bank_conflict"]
+++*/
// Fault: the tree over the warps halves its stride, so warp 0 meets warp WARPS / 2 before warp 1. With
// one or two warps the order is kept all the same; from four warps on (n above 64) it is not.
extern "C" __global__ void ordered_cross_warp_halves(const In *in, Out *out, size_t n)
{
    constexpr unsigned WARPS = BLOCK / 32;
    __shared__ Acc cells[WARPS];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t k = (size_t)blockIdx.x * BLOCK + tid;

    Acc value = k < n ? Op::lift(in[k], k) : Op::identity();
#pragma unroll
    for (unsigned d = 1; d < 32; d *= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (lane == 0)
        cells[warp] = value;
    __syncthreads();

#pragma unroll
    for (unsigned s = WARPS / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
