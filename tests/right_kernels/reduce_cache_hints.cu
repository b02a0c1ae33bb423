/*+++
title      = "Cache hints at every access"
change     = "Elements are streamed by ldcs, partials stored by stcg and read back by ldcv, and the answer is written through by stwt."
scope      = "grid"
grid       = "fixed"
fixed_grid = 100
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 1024]
techniques = ["shuffle", "multi_add", "grid_stride", "last_block"]
ops        = ["sum", "prod", "min", "max", "mean"]
+++*/
// Right: the hints change where data is cached and nothing of what it is; the partials are still ordered by
// fences on both sides of the count.
__device__ Acc fold_block(Acc *cells, Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        cells[threadIdx.x / 32] = value;
    __syncthreads();
    value = cells[0];
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, cells[warp]);
    return value;
}

extern "C" __global__ void reduce_cache_hints(const In *in, Out *out, size_t n, Acc *partials,
                                              unsigned *counter)
{
    __shared__ Acc cells[BLOCK / 32];
    __shared__ unsigned place;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(__ldcs(in + k), k));
    value = fold_block(cells, value);
    if (threadIdx.x == 0) {
        __stcg(partials + blockIdx.x, value);
        __threadfence();
        place = atomicInc(counter, gridDim.x - 1);
        __threadfence();
    }
    __syncthreads();
    if (place + 1 < gridDim.x)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcv(partials + k));
    value = fold_block(cells, value);
    if (threadIdx.x == 0)
        __stwt(out, Op::finish(value));
}
