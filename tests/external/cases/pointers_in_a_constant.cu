// The kernel finds its arrays through a struct in constant memory.
#include <cstdio>
#include <vector>
struct Arrays { const float *x; float *sum; int n; };
__constant__ Arrays arrays;
__global__ void total()
{
    float a = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < arrays.n; i += gridDim.x * blockDim.x)
        a += arrays.x[i];
    atomicAdd(arrays.sum, a);
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
    Arrays own = {x, sum, n};
    cudaMemcpyToSymbol(arrays, &own, sizeof own);
    total<<<8, 128>>>();
    cudaMemcpy(&result, sum, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", result);
}
