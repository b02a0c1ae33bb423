/*+++
title      = "Arrivals that only release"
change     = "The last block is found by a fetch_add with release order."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: the last block's arrival does not acquire, so its reads of the other partials are not ordered
// after the writes of the other blocks.
#include <cuda/atomic>

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

extern "C" __global__ void release_without_acquire(const In *in, Out *out, size_t n, Acc *partials,
                                                   unsigned *counter)
{
    __shared__ bool last;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = block_sum(value);
    if (threadIdx.x == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value;
        last = arrivals.fetch_add(1, cuda::std::memory_order_release) + 1 == gridDim.x;
        if (last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!last)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);  // <- hazard
    value = block_sum(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
