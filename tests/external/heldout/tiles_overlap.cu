#include <cstdio>
#include <cstdlib>

#define T 128

__global__ void tileSum(const float* in, float* out, int n) {
    __shared__ float s[T];
    int base = blockIdx.x * T;
    float v = 0;
    if (base + threadIdx.x < n) v += in[base + threadIdx.x];
    if (base + threadIdx.x + T < n) v += in[base + threadIdx.x + T];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = T >> 1; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (!threadIdx.x) out[blockIdx.x] = s[0];
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4096;
    int blocks = (n + T - 1) / T;
    float* h = (float*)malloc(n * sizeof(float));
    for (int i = 0; i < n; i++) h[i] = i & 3;
    float *in, *out;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, blocks * sizeof(float));
    cudaMemcpy(in, h, n * sizeof(float), cudaMemcpyHostToDevice);
    tileSum<<<blocks, T>>>(in, out, n);
    float* p = (float*)malloc(blocks * sizeof(float));
    cudaMemcpy(p, out, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    float s = 0;
    for (int b = 0; b < blocks; b++) s += p[b];
    printf("%f\n", s);
    free(h); free(p); cudaFree(in); cudaFree(out);
}
