#include <cuda_runtime.h>

__global__ void addSquares(const double* x, double* acc, long n) {
    __shared__ double s[64];
    double v = 0;
    for (long i = blockIdx.x * 64L + threadIdx.x; i < n; i += gridDim.x * 64L) v += x[i] * x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 32; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(acc, s[0]);
}
__global__ void root(double* acc) { acc[0] = sqrt(acc[0]); }

void norm2(const double* x, long n, double* result) {
    cudaMemset(result, 0, sizeof(double));
    addSquares<<<32, 64>>>(x, result, n);
    root<<<1, 1>>>(result);
}
