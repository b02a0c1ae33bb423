#include <cuda_runtime.h>
#include <utility>

__global__ void pairSum(const float* in, float* out, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * 512 + threadIdx.x;
    float v = i < n ? in[i] : 0;
    if (i + 256 < n) v += in[i + 256];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

float sumPingPong(const float* host, int n) {
    float *a, *b, r = 0;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, ((n + 511) / 512) * sizeof(float));
    cudaMemcpy(a, host, n * sizeof(float), cudaMemcpyHostToDevice);
    while (n > 1) {
        int blocks = (n + 511) / 512;
        pairSum<<<blocks, 256>>>(a, b, n);
        std::swap(a, b);
        n = blocks;
    }
    cudaMemcpy(&r, a, sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(a);
    cudaFree(b);
    return r;
}
