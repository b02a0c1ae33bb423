#include <cuda_runtime.h>
#include <vector>

__global__ void partialSums(const double* p, double* q, size_t n) {
    __shared__ double s[256];
    double v = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 2 * (size_t)blockDim.x * gridDim.x) v += p[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) q[blockIdx.x] = s[0];
}

double sumVector(const std::vector<double>& x) {
    double *p, *q;
    const int blocks = 24;
    cudaMalloc(&p, x.size() * sizeof(double));
    cudaMalloc(&q, blocks * sizeof(double));
    cudaMemcpy(p, x.data(), x.size() * sizeof(double), cudaMemcpyHostToDevice);
    partialSums<<<blocks, 256>>>(p, q, x.size());
    double h[blocks], r = 0;
    cudaMemcpy(h, q, sizeof h, cudaMemcpyDeviceToHost);
    for (double d : h) r += d;
    cudaFree(p);
    cudaFree(q);
    return r;
}
