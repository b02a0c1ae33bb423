/*+++
title      = "As many blocks as the GPU holds"
change     = "The grid fills all SMs instead of being fixed at 24 blocks; warps reduce by shuffles."
expect     = "All SMs busy: 38.8 us at 2^25, where 24 blocks take 162 (H200)."
after      = "reduce_grid_stride"
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "relaunch_one_block"
block      = 512
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "multi_add", "grid_stride", "shuffle"]
+++*/
// 24 blocks suited a GPU of 12 SMs. Here the host launches as many blocks as all SMs hold at the same
// time, so no second wave of blocks leaves SMs idle at its end. One block still reduces all partials in a
// second launch. Warps reduce by shuffles, without barriers.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) reduce_fill(const In *in, Out *out, size_t n)
{
    const unsigned tid = threadIdx.x;

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    const long long step = (long long)gridDim.x * BLOCK;
    for (long long k = (long long)blockIdx.x * BLOCK + tid; k < (long long)n; k += step)
        value = Op::combine(value, Op::lift(in[k], k));

    // Tree: shuffles within each warp, then the partials of the warps in turn.
    value = fold_block(value);

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
