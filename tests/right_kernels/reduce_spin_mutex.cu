/*+++
title      = "Spin mutex around a total"
change     = "Each block takes a compare-and-swap mutex and adds its partial to a total at file scope that no atomic could take."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 512
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "multi_add", "grid_stride"]
dtypes     = ["int32", "uint32", "int64", "uint64"]
ops        = ["sum", "prod", "min", "max", "argmin", "argmax"]
+++*/
// Right: one thread a block locks, so no two lanes of a warp contend; the holder needs nothing from those who
// wait. The first holder of a launch overwrites the total, the last one leaves the count at 0.
__device__ int mutex;
__device__ Acc total;

__device__ void lock()
{
    while (atomicCAS(&mutex, 0, 1) != 0)
        __nanosleep(100);
    __threadfence();
}

__device__ void unlock()
{
    __threadfence();
    atomicExch(&mutex, 0);
}

extern "C" __global__ void reduce_spin_mutex(const In *in, Out *out, size_t n, Acc *partials,
                                             unsigned *counter)
{
    __shared__ Acc of_warp[BLOCK / 32];
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);

    lock();
    const unsigned before_me = *counter;
    if (before_me > 0)
        value = Op::combine(total, value);
    total = value;
    if (before_me == gridDim.x - 1)
        *out = Op::finish(value);
    *counter = (before_me + 1) % gridDim.x;
    unlock();
}
