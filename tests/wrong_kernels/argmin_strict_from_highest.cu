/*+++
title      = "Arg-minimum from the highest value down"
change     = "Everybody starts at the highest value with no index, and takes what is below."
scope      = "grid"
grid       = "fixed"
fixed_grid = 96
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512]
ops        = ["argmin"]
techniques = ["grid_stride", "shuffle"]
+++*/
// Fault: an element equal to the start value is never below it, so its index is never taken. An array
// of nothing but +infinity (or of the largest integer, for 32 and 64 bits) answers -1 instead of 0.
__device__ bool before(Acc a, Acc b)
{
    if (a.value != a.value || b.value != b.value)
        return Op::precedes(a, b);
    return a.value < b.value || (a.value == b.value && a.index < b.index && a.index >= 0);
}

__device__ Acc fold_warp(Acc mine)
{
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        const Acc other = __shfl_down_sync(0xffffffffu, mine, offset);
        if (before(other, mine))
            mine = other;
    }
    return mine;
}

extern "C" __global__ void argmin_strict_from_highest(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK / 32];
    const Acc none = {HIGHEST, -1};
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    Acc best = none;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK) {
        const Acc x = Op::lift(in[k], k);
        if (before(x, best))
            best = x;
    }
    best = fold_warp(best);
    if (lane == 0)
        cells[warp] = best;
    __syncthreads();
    if (warp == 0) {
        best = fold_warp(lane < BLOCK / 32 ? cells[lane] : none);
        if (lane == 0)
            out[blockIdx.x] = Op::finish(best);
    }
}
