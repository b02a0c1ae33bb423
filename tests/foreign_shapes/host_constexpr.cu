// expected: right  shape: host function with constexpr in its body
#include <cstdio>

__global__ void add_all(const float *values, float *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

void launch(const float *values, float *total, int count)
{
    constexpr int threads = 128;
    cudaMemset(total, 0, sizeof(float));
    add_all<<<(count + threads - 1) / threads, threads>>>(values, total, count);
    printf("%d\n", int(cudaGetLastError()));
}
