/*+++
title      = "A relaxed arrival between two fences"
change     = "The arrival is a relaxed fetch_add; a release fence before and an acquire fence after it order the partials."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [256]
+++*/
// Right: a fence may take the place of the memory order of an atomic operation. Reading the active mask
// in a branch and adding for whatever lanes it names is right for any part of them.
#include <cuda/atomic>

__device__ int joined;

extern "C" __global__ void reduce_acquire_fence(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc cells[BLOCK];
    __shared__ bool last;
    const unsigned tid = threadIdx.x;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    if (tid % 3 == 0) {
        const unsigned active = __activemask();
        if (tid % 32 == __ffs(active) - 1)
            atomicAdd(&joined, __popc(active));
    }
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = cells[0];
        cuda::atomic_thread_fence(cuda::std::memory_order_release, cuda::thread_scope_device);
        last = arrivals.fetch_add(1, cuda::std::memory_order_relaxed) + 1 == gridDim.x;
        cuda::atomic_thread_fence(cuda::std::memory_order_acquire, cuda::thread_scope_device);
        if (last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!last)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        *out = Op::finish(cells[0]);
}
