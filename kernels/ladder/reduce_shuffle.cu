/*+++
title      = "Warp shuffles, one item per thread"
change     = "Each warp reduces its elements by shuffles; shared memory holds one partial per warp."
expect     = "One block barrier in all. With one item per thread, blocks and launches are as many as before."
after      = "reduce_warp_tail"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "shuffle"]
+++*/
// A tree in shared memory writes and reads every partial at every step, and only its last warp needs
// no block barriers. A shuffle moves a register of lane t + s directly to lane t: each warp reduces
// its 32 elements, then the first warp reduces the partials of all warps. The block may have any
// whole number of warps, not only a power of two.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_shuffle(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    Acc value = i < n ? Op::lift(in[i], i) : Op::identity();

    // Tree: within each warp, then over the partials of the warps.
    value = fold_warp(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    if (warp == 0)
        value = fold_warp(lane < BLOCK / 32 ? shared[lane] : Op::identity());

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
