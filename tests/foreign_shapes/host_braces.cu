// expected: right  shape: host function after the kernel with an initialised array in its body
#include <cstdio>

__global__ void block_totals(const int *values, int *totals, int count)
{
    extern __shared__ int cell[];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = cell[0];
}

int main()
{
    int host[4] = {3, 1, 4, 1};
    int *values, *totals;
    cudaMalloc(&values, sizeof host);
    cudaMalloc(&totals, sizeof host);
    cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice);
    block_totals<<<1, 32, 32 * sizeof(int)>>>(values, totals, 4);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
