/*+++
title      = "Four-stage pipeline a thread"
change     = "Each thread streams its elements through four slots of shared memory of its own with a cuda::pipeline."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 128
blocks     = [32, 64, 128, 256, 512]
techniques = ["multi_add", "grid_stride", "no_divergence", "no_bank_conflict"]
+++*/
// Right: a slot is read and filled by one thread alone, after that thread has waited for its copy and
// before it commits the next one, so the streaming needs no barrier of the block.
#include <cuda/pipeline>

extern "C" __global__ void reduce_pipeline_stages(const In *in, Out *out, size_t n)
{
    constexpr unsigned STAGES = 4;
    __shared__ In slots[STAGES][BLOCK];
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t step = (size_t)gridDim.x * BLOCK, first = (size_t)blockIdx.x * BLOCK + tid;

    auto pipe = cuda::make_pipeline();
    const auto request = [&](unsigned slot, size_t k) {
        pipe.producer_acquire();
        if (k < n)
            cuda::memcpy_async(&slots[slot][tid], in + k, sizeof(In), pipe);
        pipe.producer_commit();
    };

    for (unsigned stage = 0; stage < STAGES; stage++)
        request(stage, first + stage * step);
    Acc value = Op::identity();
    unsigned slot = 0;
    for (size_t k = first; k < n; k += step) {
        pipe.consumer_wait();
        value = Op::combine(value, Op::lift(slots[slot][tid], k));
        pipe.consumer_release();
        request(slot, k + STAGES * step);
        slot = (slot + 1) % STAGES;
    }
    for (unsigned stage = 0; stage < STAGES; stage++) {
        pipe.consumer_wait();
        pipe.consumer_release();
    }

    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
