#include <cstdio>
#include <vector>

__device__ unsigned done;

__global__ void onePass(const float* x, float* part, float* out, int n) {
    __shared__ float s[128];
    __shared__ unsigned ticket;
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) v += x[i];
    s[t] = v;
    __syncthreads();
    for (int k = 64; k; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) {
        part[blockIdx.x] = s[0];
        ticket = atomicAdd(&done, 1);
    }
    __syncthreads();
    if (ticket == gridDim.x - 1 && t == 0) {
        float total = 0;
        for (int b = 0; b < gridDim.x; b++) total += part[b];
        *out = total;
        done = 0;
    }
}

int main() {
    const int n = 30000, blocks = 20;
    std::vector<float> h(n, 1.f);
    float *x, *part, *out, r;
    cudaMalloc(&x, n * 4);
    cudaMalloc(&part, blocks * 4);
    cudaMalloc(&out, 4);
    cudaMemcpy(x, h.data(), n * 4, cudaMemcpyHostToDevice);
    onePass<<<blocks, 128>>>(x, part, out, n);
    cudaMemcpy(&r, out, 4, cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
