#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void addUp(const unsigned long long* v, unsigned long long* total, size_t n) {
    unsigned long long t = 0;
    for (size_t i = threadIdx.x + (size_t)blockIdx.x * blockDim.x; i < n; i += (size_t)blockDim.x * gridDim.x) t += v[i];
    for (int o = 16; o; o /= 2) t += __shfl_down_sync(0xffffffff, t, o);
    if ((threadIdx.x & 31) == 0) atomicAdd(total, t);
}

int main(int argc, char** argv) {
    size_t n = argc > 1 ? strtoull(argv[1], 0, 10) : 40000;
    std::vector<unsigned long long> h(n);
    for (size_t i = 0; i < n; i++) h[i] = i * i;
    unsigned long long *v, *total, r;
    cudaMalloc(&v, n * 8);
    cudaMalloc(&total, 8);
    cudaMemset(total, 0, 8);
    cudaMemcpy(v, h.data(), n * 8, cudaMemcpyHostToDevice);
    void* args[3] = {&v, &total, &n};
    cudaLaunchKernel((const void*)addUp, dim3(30), dim3(96), args, 0, nullptr);
    cudaMemcpy(&r, total, 8, cudaMemcpyDeviceToHost);
    printf("%llu\n", r);
}
