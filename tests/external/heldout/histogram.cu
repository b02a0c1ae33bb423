#include <cstdio>
#include <vector>

__global__ void histogram(const unsigned char* data, unsigned* bins, int n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

int main() {
    int n = 10000;
    std::vector<unsigned char> h(n);
    for (int i = 0; i < n; i++) h[i] = i * 31;
    unsigned char* data;
    unsigned* bins;
    std::vector<unsigned> r(256);
    cudaMalloc(&data, n);
    cudaMalloc(&bins, 1024);
    cudaMemset(bins, 0, 1024);
    cudaMemcpy(data, h.data(), n, cudaMemcpyHostToDevice);
    histogram<<<8, 256>>>(data, bins, n);
    cudaMemcpy(r.data(), bins, 1024, cudaMemcpyDeviceToHost);
    printf("%u\n", r[0]);
}
