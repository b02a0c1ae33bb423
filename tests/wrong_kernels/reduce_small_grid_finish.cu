/*+++
title  = "A short finish for small grids"
change = "Up to 32 partials are folded by one warp; more by the whole block."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 256
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: the counter is set back at the very end, which the short way for up to 32 blocks never reaches.
// The author added that way later. The first small launch is right and leaves the counter at its grid;
// every launch after it, small or large, misses its last block. Shows in the second launch.
__device__ Acc fold_warp(Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

__device__ Acc fold_block(Acc value, Acc *sums)
{
    value = fold_warp(value);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < BLOCK / 32 ? sums[threadIdx.x] : Op::identity();
    __syncthreads();
    return fold_warp(value);
}

extern "C" __global__ void reduce_small_grid_finish(const In *in, Out *out, size_t n, Acc *partials,
                                                    unsigned *counter)
{
    __shared__ Acc sums[BLOCK / 32];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
    for (unsigned item = 0; item < ITEMS; item++)
        if (i + item * BLOCK < n)
            value = Op::combine(value, Op::lift(in[i + item * BLOCK], i + item * BLOCK));
    value = fold_block(value, sums);
    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;

    if (gridDim.x <= 32) {
        if (tid < 32) {
            value = fold_warp(tid < gridDim.x ? __ldcg(partials + tid) : Op::identity());
            if (tid == 0)
                *out = Op::finish(value);
        }
        return;
    }
    value = Op::identity();
    for (unsigned b = tid; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(partials + b));
    value = fold_block(value, sums);
    if (tid == 0) {
        *out = Op::finish(value);
        *counter = 0;
    }
}
