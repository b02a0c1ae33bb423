#include <cstdio>
#include <cstdlib>

__global__ void block_sum(const float *x, float *partials, int n)
{
    __shared__ float cell[256];
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += x[i];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x] = cell[0];
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1 << 20;
    float *host = (float *)malloc(n * sizeof(float)), sums[64], total = 0;
    for (int i = 0; i < n; i++)
        host[i] = 1;
    float *x, *partials;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&partials, sizeof sums);
    cudaMemcpy(x, host, n * sizeof(float), cudaMemcpyHostToDevice);
    block_sum<<<64, 256>>>(x, partials, n);
    cudaMemcpy(sums, partials, sizeof sums, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++)
        total += sums[i];
    printf("%g\n", total);
}
