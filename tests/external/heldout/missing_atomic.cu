#include <cstdio>
#include <vector>

__global__ void accumulate(const float* v, float* total, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x] = i < n ? v[i] : 0;
    __syncthreads();
    for (int k = 32; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *total += s[0];
}

int main() {
    int n = 3000;
    std::vector<float> h(n, 2.f);
    float *v, *total, r = 0;
    cudaMalloc(&v, n * sizeof(float));
    cudaMalloc(&total, sizeof(float));
    cudaMemset(total, 0, sizeof(float));
    cudaMemcpy(v, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    accumulate<<<(n + 63) / 64, 64>>>(v, total, n);
    cudaMemcpy(&r, total, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
