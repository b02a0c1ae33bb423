/*+++
title      = "A lock around the total"
change     = "Each block adds its result to the total under a lock."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [256]
dtypes     = ["int32", "uint32", "int64", "uint64"]
ops        = ["sum", "prod", "min", "max"]
+++*/
// Rejected by: hazard.
// Fault: the lock is released before the total is written, so the next holder may read the old one.
__device__ int mutex;
__device__ Acc total;

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

extern "C" __global__ void lock_released_early(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = block_sum(value);
    if (threadIdx.x != 0)
        return;
    while (atomicCAS(&mutex, 0, 1) != 0)
        __nanosleep(100);
    __threadfence();
    const unsigned before_me = *counter;
    *counter = (before_me + 1) % gridDim.x;
    if (before_me > 0)
        value = Op::combine(total, value);  // <- hazard
    __threadfence();
    atomicExch(&mutex, 0);
    total = value;  // <- hazard
    if (before_me == gridDim.x - 1)
        *out = Op::finish(value);
}
