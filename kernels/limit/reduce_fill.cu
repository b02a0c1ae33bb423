/*+++
title      = "As many blocks as the GPU holds"
change     = "The grid fills the SMs instead of being 24 blocks; blocks are folded by shuffles."
expect     = "Every SM at work: 38.8 us at 2^25, where 24 blocks take 162 (H200)."
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
// 24 blocks suited a GPU of 12 SMs. Here the host launches as many as all SMs hold at once, so there
// is one turn of blocks and no second one that leaves SMs idle at its end. Partials are as many, and
// still no more than one block folds in a second launch. A warp folds by shuffles, without barriers.
// Thread 0 gets the block's value.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, lanes));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) reduce_fill(const In *in, Out *out, size_t n)
{
    const unsigned tid = threadIdx.x;

    // Load: a thread with nothing to add brings the identity, so the tree needs no bounds.
    // Signed indices cannot wrap, so the compiler counts the rounds and unrolls them, loads first.
    Acc value = Op::identity();
    const long long step = (long long)gridDim.x * BLOCK;
    for (long long k = (long long)blockIdx.x * BLOCK + tid; k < (long long)n; k += step)
        value = Op::combine(value, Op::lift(in[k], k));

    // Tree: shuffles in each warp, then the warps' values one by one.
    value = fold_block(value);

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
