/*+++
title      = "A stage released before it is read"
change     = "The block streams tiles through two shared stages of a cuda::pipeline."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: a stage is released before its elements are read, so its next copy may overwrite them.
#include <cooperative_groups.h>
#include <cuda/pipeline>

__device__ Acc block_sum(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

extern "C" __global__ void pipeline_released_early(const In *in, Out *out, size_t n)
{
    constexpr unsigned STAGES = 2;
    __shared__ In stages[STAGES][BLOCK];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const size_t step = (size_t)gridDim.x * BLOCK, first = (size_t)blockIdx.x * BLOCK;
    const auto request = [&](unsigned stage, size_t from) {
        pipe.producer_acquire();
        if (from + threadIdx.x < n)
            cuda::memcpy_async(&stages[stage][threadIdx.x], in + from + threadIdx.x, sizeof(In), pipe);
        pipe.producer_commit();
    };
    for (unsigned stage = 0; stage < STAGES; stage++)
        request(stage, first + stage * step);
    Acc value = Op::identity();
    const unsigned reads = threadIdx.x ^ 1;
    for (size_t from = first, turn = 0; from < n; from += step, turn++) {
        const unsigned stage = turn % STAGES;
        pipe.consumer_wait();
        pipe.consumer_release();
        if (from + reads < n)
            value = Op::combine(value, Op::lift(stages[stage][reads], from + reads));  // <- hazard
        request(stage, from + STAGES * step);
    }
    for (unsigned stage = 0; stage < STAGES; stage++) {
        pipe.consumer_wait();
        pipe.consumer_release();
    }
    value = block_sum(value);
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(value);
}
