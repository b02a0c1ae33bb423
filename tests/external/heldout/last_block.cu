#include <cstdio>
#include <cstdlib>
#include <vector>

__device__ unsigned ticket = 0;

__global__ void singlePass(const float* x, volatile float* part, float* out, int n) {
    __shared__ float s[256];
    __shared__ bool last;
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) v += x[i];
    s[t] = v;
    __syncthreads();
    for (int k = 128; k; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        v = 0;
        for (int b = t; b < gridDim.x; b += 256) v += part[b];
        s[t] = v;
        __syncthreads();
        for (int k = 128; k; k >>= 1) {
            if (t < k) s[t] += s[t + k];
            __syncthreads();
        }
        if (t == 0) *out = s[0];
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1 << 17;
    std::vector<float> h(n, 1.f);
    int blocks = 96;
    float *x, *part, *out, r;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&part, blocks * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    singlePass<<<blocks, 256>>>(x, part, out, n);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
