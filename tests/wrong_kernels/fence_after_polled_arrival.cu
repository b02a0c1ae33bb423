/*+++
title      = "A grid barrier with a late fence"
change     = "Blocks announce their partial, fence, and poll the count until all have come."
scope      = "grid"
grid       = "fixed"
fixed_grid = 8
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: the fence comes after the arrival, so a block that sees the full count may still read an old
// partial. Polling by atomicAdd(counter, 0) changes nothing, so it announces nothing either.
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

__device__ unsigned left;

extern "C" __global__ void fence_after_polled_arrival(const In *in, Out *out, size_t n, Acc *partials,
                                                      unsigned *counter)
{
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = block_sum(value);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = value;
        atomicAdd(counter, 1u);
        __threadfence();
        while (atomicAdd(counter, 0u) < gridDim.x)
            __nanosleep(100);
        if (atomicInc(&left, gridDim.x - 1) == gridDim.x - 1)
            atomicExch(counter, 0u);
    }
    __syncthreads();
    if (blockIdx.x != 0)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));  // <- hazard
    value = block_sum(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
