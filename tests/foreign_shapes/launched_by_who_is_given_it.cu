// expected: right  shape: launched by a function that is given the kernel, in blocks of which it alone is right
__global__ void sum_of_six_warps(const int *values, int *total, int n)
{
    __shared__ int sums[6];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += values[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int k = 1; k < 6; k++) sum += sums[k];
    atomicAdd(total, sum);
}

template <typename Kernel, typename... Arguments>
float timed(const char *name, Kernel kernel, int blocks, int threads, Arguments... arguments)
{
    for (int k = 0; k < 10; k++) kernel<<<blocks, threads>>>(arguments...);
    return 0;
}

int main()
{
    int *values, *total, n = 1000000;
    const int threads = 192;
    timed("six warps", sum_of_six_warps, 40, threads, values, total, n);
}
