#include <cstdio>
#include <vector>
#define N 65536
#define BLOCKS 64
#define THREADS 128

__global__ void reduceTo(float* out, const float* in, int n) {
    __shared__ float s[THREADS];
    float v = 0.0f;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += THREADS * gridDim.x) v += in[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = THREADS / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

int main(void) {
    std::vector<float> h(N, 1.5f);
    float *in, *part, *out, r;
    cudaMalloc(&in, N * sizeof(float));
    cudaMalloc(&part, BLOCKS * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemcpy(in, h.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    cudaEventRecord(a);
    reduceTo<<<BLOCKS, THREADS>>>(part, in, N);
    reduceTo<<<1, THREADS>>>(out, part, BLOCKS);
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
    return 0;
}
