#include <cuda_runtime.h>
#include <vector>
#include <stdexcept>

static __global__ void blockSums(const double* x, double* out, size_t n) {
    extern __shared__ double sh[];
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    sh[threadIdx.x] = i < n ? x[i] : 0.0;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k; k >>= 1) {
        if (threadIdx.x < k) sh[threadIdx.x] += sh[threadIdx.x + k];
        __syncthreads();
    }
    if (!threadIdx.x) out[blockIdx.x] = sh[0];
}

double mean(const std::vector<double>& values) {
    if (values.empty()) throw std::invalid_argument("no values");
    size_t n = values.size();
    unsigned blocks = (n + 511) / 512;
    double *x = nullptr, *out = nullptr;
    cudaMalloc(&x, n * sizeof(double));
    cudaMalloc(&out, blocks * sizeof(double));
    cudaMemcpy(x, values.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    blockSums<<<blocks, 512, 512 * sizeof(double)>>>(x, out, n);
    std::vector<double> part(blocks);
    cudaMemcpy(part.data(), out, blocks * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(x);
    cudaFree(out);
    double s = 0;
    for (double p : part) s += p;
    return s / n;
}
