/*+++
title      = "Arrivals by acquire and release"
change     = "The arrival count is a cuda::atomic_ref with acquire-release order instead of an atomic between two fences."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 512
blocks     = [64, 128, 256, 512, 1024]
techniques = ["shuffle", "last_block", "multi_add", "grid_stride"]
+++*/
// Right: every arrival releases the store before it and extends the release sequence of those before it;
// the last one acquires them all, and the block barrier hands that on to the block's other threads.
#include <cuda/atomic>

__device__ Acc fold_block(Acc *of_warp, Acc value)
{
    const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset > 0; offset >>= 1)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (lane == 0)
        of_warp[warp] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        for (unsigned other = 1; other < BLOCK / 32; other++)
            value = Op::combine(value, of_warp[other]);
    __syncthreads();
    return value;
}

extern "C" __global__ void reduce_acq_rel_arrival(const In *in, Out *out, size_t n, Acc *partials,
                                                  unsigned *counter)
{
    __shared__ Acc of_warp[BLOCK / 32];
    __shared__ bool last;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(of_warp, value);

    if (threadIdx.x == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value;
        last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) + 1 == gridDim.x;
        if (last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!last)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);
    value = fold_block(of_warp, value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
