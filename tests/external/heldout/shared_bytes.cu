#include <cstdio>
#include <vector>

__global__ void sumBlocks(const float* in, float* out, int n) {
    extern __shared__ float buf[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    buf[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k >>= 1) {
        if (t < k) buf[t] += buf[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, buf[0]);
}

int main() {
    const int n = 5000, threads = 256;
    std::vector<float> h(n, 1.f);
    float *in, *out, r;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemset(out, 0, sizeof(float));
    cudaMemcpy(in, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    sumBlocks<<<(n + threads - 1) / threads, threads, threads>>>(in, out, n);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
