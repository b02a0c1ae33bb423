#include <cuda_runtime.h>

__global__ void warpTotals(const int* values, int* result, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        int v = values[i];
        for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
        if ((threadIdx.x & 31) == 0) atomicAdd(result, v);
    }
}

void sumInts(const int* values, int* result, int count) {
    cudaMemset(result, 0, sizeof(int));
    int threads = 192;
    warpTotals<<<(count + threads - 1) / threads, threads>>>(values, result, count);
}
