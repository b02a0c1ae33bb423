/*+++
title  = "Last block folds, 32 items a thread"
change = "Tiles of 8192 elements keep the partials few; the last block to arrive folds them."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 32
finish = "last_block"
block  = 256
blocks = [32, 64, 128, 256, 512]
+++*/
// Fault: the partial is handed to another block behind __threadfence_block(), which orders it for the
// threads of the own block only. It is cheaper, and the author read "block" as "for the block's result".
// The last block may see the count and an old partial. Shows rarely, on GPUs that let a store pass an
// atomic to another memory slice; with one block never.
__device__ Acc fold_warp(Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

__device__ Acc fold_block(Acc value, Acc *sums)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = fold_warp(value);
    __syncthreads();
    if (lane == 0)
        sums[warp] = value;
    __syncthreads();
    return fold_warp(lane < BLOCK / 32 ? sums[lane] : Op::identity());
}

extern "C" __global__ void reduce_big_tile_last_block(const In *in, Out *out, size_t n, Acc *partials,
                                                      unsigned *counter)
{
    __shared__ Acc sums[BLOCK / 32];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const size_t base = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
#pragma unroll 8
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = base + (size_t)item * BLOCK;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    value = fold_block(value, sums);

    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence_block();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence_block();
    }
    __syncthreads();
    if (!is_last)
        return;

    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    value = fold_block(value, sums);
    if (tid == 0)
        *out = Op::finish(value);
}
