/*+++
title      = "Two stages of asynchronous copies"
change     = "While one tile is summed in shared memory, the next is copied into the other buffer past the registers."
min_cc     = "8.0"
scope      = "grid"
grid       = "fixed"
fixed_grid = 264
walk       = "contiguous"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["sum"]
+++*/
// Fault: two buffers and one barrier a tile. The barrier says that a tile has arrived; nothing says that
// all have read it before the next round's copy into the same buffer is started. Threads read cells that
// others copy, so a fast warp can overwrite what a slow one is about to add. A copy takes hundreds of
// cycles and hides it. Shows by chance for shares of more than two tiles.
#include <cuda_pipeline.h>

constexpr unsigned RUN = 4, TILE = BLOCK * RUN;

__device__ void copy_tile(float *cells, const float *in, size_t tile, size_t end)
{
    if (tile < end)
        for (unsigned r = 0; r < RUN; r++) {
            const unsigned cell = r * BLOCK + threadIdx.x;
            const bool inside = tile + cell < end;
            __pipeline_memcpy_async(cells + cell, in + (inside ? tile + cell : tile), 4, inside ? 0 : 4);
        }
    __pipeline_commit();
}

extern "C" __global__ void sum_async_stages(const float *in, float *out, size_t n)
{
    __shared__ float stages[2][TILE];
    __shared__ float sums[32];
    const unsigned tid = threadIdx.x;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * share, end = min(begin + share, n);

    float sum = 0;
    copy_tile(stages[0], in, begin, end);
    unsigned now = 0;
    for (size_t tile = begin; tile < end; tile += TILE, now ^= 1) {
        copy_tile(stages[now ^ 1], in, tile + TILE, end);
        __pipeline_wait_prior(1);
        __syncthreads();
        const float *run = stages[now] + tid * RUN;
        for (unsigned r = 0; r < RUN; r++)
            sum += run[r];
    }
    __pipeline_wait_prior(0);

    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (tid % 32 == 0)
        sums[tid / 32] = sum;
    __syncthreads();
    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            sum += sums[w];
        out[blockIdx.x] = sum;
    }
}
