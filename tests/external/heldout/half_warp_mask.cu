#include <cuda_runtime.h>

__global__ void sixteenWarps(const float* x, float* out, int n) {
    __shared__ float s[16];
    float v = 0;
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) v += x[i];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 16) {
        v = s[threadIdx.x];
        for (int d = 8; d; d /= 2) v += __shfl_down_sync(0x0000ffff, v, d, 16);
        if (threadIdx.x == 0) atomicAdd(out, v);
    }
}

void sumHalfWarp(const float* x, float* out, int n) {
    cudaMemset(out, 0, sizeof(float));
    sixteenWarps<<<12, 512>>>(x, out, n);
}
