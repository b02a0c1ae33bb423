/*+++
title      = "Partial results in a device array"
change     = "Each block leaves its result in an array of 1024; the last block sums them."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "last_block"
block      = 256
blocks     = [256]
+++*/
// Fault: the grid grows with n and the array does not, so from the 1025th block on results are written
// past its end.
__device__ Acc slots[1024];
__device__ unsigned spare[1 << 14];

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

__device__ void leave(Acc *at, Acc value) { at[blockIdx.x] = value; }

extern "C" __global__ void partials_of_1024_blocks(const In *in, Out *out, size_t n, Acc *partials,
                                                   unsigned *counter)
{
    __shared__ bool last;
    const size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    Acc value = block_sum(k < n ? Op::lift(in[k], k) : Op::identity());
    if (threadIdx.x == 0) {
        leave(slots, value);
        if (n == 0)
            spare[0]++;
        __threadfence();
        last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    value = Op::identity();
    for (unsigned s = threadIdx.x; s < gridDim.x; s += BLOCK)
        value = Op::combine(value, __ldcg(slots + s));
    value = block_sum(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
