/*+++
title      = "Maximum by fmaxf, last block folds"
change     = "The hardware's own maximum instruction instead of a comparison and a select."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["float32"]
ops        = ["max"]
techniques = ["grid_stride", "last_block", "shuffle"]
+++*/
// Fault: fmaxf returns the operand that is a number if the other is NaN, so a NaN in the input never
// reaches the answer, where it must win. Inputs without NaN are right.
__device__ float block_max(float v)
{
    __shared__ float warps[BLOCK / 32];
    for (int lane = 16; lane; lane >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = v;
    __syncthreads();
    for (unsigned w = 0; w < BLOCK / 32; w++)
        v = fmaxf(v, warps[w]);
    return v;
}

extern "C" __global__ void max_fmaxf_last_block(const float *in, float *out, size_t n, float *partials,
                                                unsigned *counter)
{
    __shared__ bool last;
    float v = -INFINITY;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        v = fmaxf(v, in[k]);
    v = block_max(v);

    if (threadIdx.x == 0) {
        partials[blockIdx.x] = v;
        __threadfence();
        last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last) {
        v = -INFINITY;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK)
            v = fmaxf(v, __ldcg(partials + b));
        v = block_max(v);
        if (threadIdx.x == 0)
            *out = v;
    }
}
