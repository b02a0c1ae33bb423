#include <cstdio>
#include <cstdlib>

__global__ void chunkSum(const float* x, float* out, int n) {
    __shared__ float s[128];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += 128) v += x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 64; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = s[0];
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 40000;
    const int parts = 4;
    float *h, *r, *x, *out;
    cudaMallocHost(&h, n * sizeof(float));
    cudaMallocHost(&r, parts * sizeof(float));
    for (int i = 0; i < n; i++) h[i] = 1.f;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, parts * sizeof(float));
    cudaStream_t stream[parts];
    int begin = 0;
    for (int p = 0; p < parts; p++) {
        int end = (long)n * (p + 1) / parts;
        cudaStreamCreate(&stream[p]);
        cudaMemcpyAsync(x + begin, h + begin, (end - begin) * sizeof(float), cudaMemcpyHostToDevice, stream[p]);
        chunkSum<<<1, 128, 0, stream[p]>>>(x + begin, out + p, end - begin);
        cudaMemcpyAsync(r + p, out + p, sizeof(float), cudaMemcpyDeviceToHost, stream[p]);
        begin = end;
    }
    cudaDeviceSynchronize();
    float total = 0;
    for (int p = 0; p < parts; p++) total += r[p];
    printf("%f\n", total);
}
