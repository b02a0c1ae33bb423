#include <cuda_runtime.h>

__global__ void total(const double* v, double* out, int n) {
    __shared__ double s[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = 0;
    if (i < n) {
        s[threadIdx.x] = v[i];
        __syncthreads();
    }
    for (int k = 64; k >= 1; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, s[0]);
}

void launchTotal(const double* v, double* out, int n, cudaStream_t stream) {
    cudaMemsetAsync(out, 0, sizeof(double), stream);
    total<<<(n + 127) / 128, 128, 0, stream>>>(v, out, n);
}
