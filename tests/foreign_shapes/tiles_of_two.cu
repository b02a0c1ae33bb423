// expected: right  shape: each thread adds two elements, which only the launch and its grid tell
#include <cstdio>

static const int kThreads = 128;

template <int N>
__global__ void pairs(const float *values, float *sums, int count)
{
    __shared__ float cell[N];
    int first = blockIdx.x * N + blockIdx.x * N + threadIdx.x;
    float mine = first < count ? values[first] : 0;
    if (first + N < count) mine += values[first + N];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = N / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}

int main()
{
    const int N = 1 << 20;
    int blocks = (N + kThreads * 2 - 1) / (kThreads * 2);
    float *values, *sums;
    cudaMalloc(&values, N * sizeof(float));
    cudaMalloc(&sums, blocks * sizeof(float));
    pairs<kThreads><<<blocks, kThreads>>>(values, sums, N);
    printf("%d\n", int(cudaDeviceSynchronize()));
}
