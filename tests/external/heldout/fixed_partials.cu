#include <cstdio>
#include <cstdlib>
#include <vector>

__device__ float g_partials[256];
__device__ unsigned g_arrived = 0;

__global__ void sumAll(const float* in, float* out, int n) {
    __shared__ float s[256];
    __shared__ bool last;
    unsigned t = threadIdx.x;
    size_t i = (size_t)blockIdx.x * 256 + t;
    s[t] = i < n ? in[i] : 0.f;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) {
        g_partials[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(&g_arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        __threadfence();
        float v = 0;
        for (unsigned b = t; b < gridDim.x; b += 256) v += ((volatile float*)g_partials)[b];
        s[t] = v;
        __syncthreads();
        for (int k = 128; k > 0; k >>= 1) {
            if (t < k) s[t] += s[t + k];
            __syncthreads();
        }
        if (t == 0) { *out = s[0]; g_arrived = 0; }
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1 << 16;
    std::vector<float> h(n, 1.f);
    float *in, *out, r;
    cudaMalloc(&in, sizeof(float) * n);
    cudaMalloc(&out, sizeof(float));
    cudaMemcpy(in, h.data(), sizeof(float) * n, cudaMemcpyHostToDevice);
    sumAll<<<(n + 255) / 256, 256>>>(in, out, n);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", r);
}
