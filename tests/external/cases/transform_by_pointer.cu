// The kernel calls its transform through a pointer that the host reads from a device variable.
#include <cstdio>
#include <vector>
typedef float (*Transform)(float);
__device__ float squared(float x) { return x * x; }
__device__ Transform transform = squared;
__global__ void apply(const float *x, float *sum, int n, Transform f)
{
    float a = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        a += f(x[i]);
    atomicAdd(sum, a);
}
int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 4096;
    std::vector<float> h(n, 0.5f);
    float *x, *sum, result;
    Transform f;
    cudaMemcpyFromSymbol(&f, transform, sizeof f);
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&sum, sizeof(float));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(sum, 0, sizeof(float));
    apply<<<8, 128>>>(x, sum, n, f);
    cudaMemcpy(&result, sum, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", result);
}
