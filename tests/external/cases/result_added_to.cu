// The result is cleared once, before a loop of launches that each add to it.
#include <cstdio>
#include <vector>
__global__ void accumulate(const float *x, float *sum, int n)
{
    __shared__ float s[256];
    float a = 0;
    for (int i = threadIdx.x; i < n; i += 256) a += x[i];
    s[threadIdx.x] = a;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *sum += s[0];
}
int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 4096;
    std::vector<float> h(n, 1.0f);
    float *x, *sum, result;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&sum, sizeof(float));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(sum, 0, sizeof(float));
    for (int k = 0; k < 3; k++) {
        accumulate<<<1, 256>>>(x, sum, n);
        cudaMemcpy(&result, sum, sizeof(float), cudaMemcpyDeviceToHost);
        printf("%g\n", result);
    }
}
