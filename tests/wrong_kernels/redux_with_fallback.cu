/*+++
title      = "Warp-wide integer addition, with a fallback"
change     = "One instruction sums a warp where the hardware has it; older hardware takes shuffles."
scope      = "grid"
grid       = "fixed"
fixed_grid = 256
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["int32", "uint32"]
ops        = ["sum"]
techniques = ["grid_stride", "atomic"]
+++*/
// Fault: the fallback begins at distance 8, so lanes 16 to 31 are never taken in. It is compiled for
// compute capability 7.5 only, which the header admits; from 8.0 on the other path is taken.
__device__ __forceinline__ unsigned warp_sum(unsigned v)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffffu, v);
#else
#pragma unroll
    for (unsigned d = 8; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
#endif
}

extern "C" __global__ void redux_with_fallback(const In *in, Out *out, size_t n)
{
    __shared__ unsigned block_sum;
    if (threadIdx.x == 0)
        block_sum = 0;
    __syncthreads();

    unsigned sum = 0;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        sum += (unsigned)in[k];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&block_sum, sum);
    __syncthreads();

    if (threadIdx.x == 0)
        atomicAdd((unsigned *)out, block_sum);
}
