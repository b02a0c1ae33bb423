/*+++
title      = "One block made of warps"
change     = "Each warp reduces 32 values in shared memory, then the first warp reduces the partials by the same code."
expect     = "One block barrier instead of eleven. The loop over the input is unchanged, so large inputs gain little."
after      = "reduce_single_block"
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 1024
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "multi_add", "warp_unroll"]
+++*/
// The tree of reduce_single_block has a block barrier after every step. A warp that reduces 32 values
// of its own needs only warp barriers, so the block waits once: before the first warp reads the
// partials of all warps. These are 32 elements apart, all in one bank.
__device__ void fold_warp(Acc *values, unsigned lane)
{
    // Lanes t < s read elements t and t + s and write t. No lane writes what another lane reads in the
    // same step, so one warp barrier per step is enough.
#pragma unroll
    for (unsigned stride = 16; stride > 0; stride /= 2) {
        if (lane < stride)
            values[lane] = Op::combine(values[lane], values[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_block_of_warps(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x, lane = tid % 32;

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncwarp();

    // Tree: within each warp, then over the partials of the warps. Lane k reads the partial of warp k
    // and overwrites element k. Of elements 0 to 31 only element 0 is a partial, and lane 0 reads it.
    fold_warp(shared + (tid - lane), lane);
    __syncthreads();
    if (tid < 32) {
        shared[lane] = lane < BLOCK / 32 ? shared[lane * 32] : Op::identity();
        __syncwarp();
        fold_warp(shared, lane);
    }

    // Write: the result.
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
