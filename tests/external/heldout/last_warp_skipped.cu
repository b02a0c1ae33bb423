#include <cstdio>
#include <cstdlib>
#include <vector>

__inline__ __device__ int warpSum(int v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}

__global__ void gridSum(const int* x, int* result, int n) {
    __shared__ int warps[32];
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
    v = warpSum(v);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 - 1 ? warps[threadIdx.x] : 0;
        v = warpSum(v);
        if (threadIdx.x == 0) atomicAdd(result, v);
    }
}

int main(int argc, char* argv[]) {
    const int n = argc > 1 ? atoi(argv[1]) : 50000;
    std::vector<int> h(n);
    for (int i = 0; i < n; ++i) h[i] = i % 7;
    int *x, *result, r;
    cudaMalloc((void**)&x, n * sizeof(int));
    cudaMalloc((void**)&result, sizeof(int));
    cudaMemcpy(x, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemset(result, 0, sizeof(int));
    gridSum<<<32, 128>>>(x, result, n);
    cudaMemcpy(&r, result, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", r);
}
