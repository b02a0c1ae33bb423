#include <cuda_fp16.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void dot(const __half* a, const __half* b, float* out, int n) {
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v += __half2float(a[i]) * __half2float(b[i]);
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 10000;
    std::vector<__half> h(n), g(n);
    for (int i = 0; i < n; i++) { h[i] = __float2half(0.5f); g[i] = __float2half(i % 4); }
    __half *a, *b;
    float *out, r;
    cudaMalloc(&a, n * sizeof(__half));
    cudaMalloc(&b, n * sizeof(__half));
    cudaMalloc(&out, sizeof(float));
    cudaMemset(out, 0, sizeof(float));
    cudaMemcpy(a, h.data(), n * sizeof(__half), cudaMemcpyHostToDevice);
    cudaMemcpy(b, g.data(), n * sizeof(__half), cudaMemcpyHostToDevice);
    dot<<<24, 128>>>(a, b, out, n);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
