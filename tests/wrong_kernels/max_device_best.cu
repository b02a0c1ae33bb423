/*+++
title      = "The best so far on the device"
change     = "Warps raise a maximum in device memory, which block 0 resets as it begins and the last block hands out."
scope      = "grid"
grid       = "fixed"
fixed_grid = 264
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["int32"]
ops        = ["max"]
+++*/
// Fault: block 0 resets the maximum inside the launch in which the others raise it, and nothing orders
// the two: what a warp raised before block 0 began is forgotten. The author counts on block 0 starting
// first. Shows when it starts late, most where each thread has one element only, and only if a forgotten
// warp held the maximum. The reset always comes before the last arrival, so no old maximum survives.
__device__ int best;

extern "C" __global__ void max_device_best(const int *in, int *out, size_t n, int *, unsigned *counter)
{
    const unsigned tid = threadIdx.x;
    if (blockIdx.x == 0 && tid == 0) {
        atomicExch(&best, (int)0x80000000);
        __threadfence();
    }

    int high = (int)0x80000000;
    const size_t step = (size_t)gridDim.x * BLOCK;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += step)
        high = max(high, in[k]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        high = max(high, __shfl_xor_sync(0xffffffffu, high, offset));
    if (tid % 32 == 0) {
        atomicMax(&best, high);
        __threadfence();
    }
    __syncthreads();

    if (tid == 0 && atomicInc(counter, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence();
        *out = atomicMax(&best, (int)0x80000000);
    }
}
