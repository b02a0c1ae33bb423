#include <cstdio>
#include <cstdlib>

__global__ void squares(const float* v, float* part, int n) {
    __shared__ float s[128];
    float t = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) t += v[i] * v[i];
    s[threadIdx.x] = t;
    __syncthreads();
    for (int k = 64; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) part[blockIdx.x] = s[0];
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 12345;
    float *v, *part;
    cudaMallocManaged(&v, n * sizeof(float));
    cudaMallocManaged(&part, 32 * sizeof(float));
    for (int i = 0; i < n; i++) v[i] = 0.001f * i;
    squares<<<32, 128>>>(v, part, n);
    cudaDeviceSynchronize();
    float sum = 0;
    for (int b = 0; b < 32; b++) sum += part[b];
    printf("sum of squares %f\n", sum);
    cudaFree(v);
    cudaFree(part);
}
