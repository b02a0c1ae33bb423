#include <cstdio>
#include <vector>
#define N 20000

__device__ int mutex = 0;

__global__ void lockedSum(const float* x, float* total, int n) {
    __shared__ float s[128];
    float v = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 64; k; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        while (atomicCAS(&mutex, 0, 1) != 0) { }
        __threadfence();
        float old = *(volatile float*)total;
        __threadfence();
        atomicExch(&mutex, 0);
        *(volatile float*)total = old + s[0];
    }
}

int main() {
    std::vector<float> h(N, 0.25f);
    float *x, *total, r = 0;
    cudaMalloc(&x, N * sizeof(float));
    cudaMalloc(&total, sizeof(float));
    cudaMemcpy(x, h.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(total, &r, sizeof(float), cudaMemcpyHostToDevice);
    lockedSum<<<40, 128>>>(x, total, N);
    cudaMemcpy(&r, total, sizeof(float), cudaMemcpyDeviceToHost);
    printf("total %f\n", r);
}
