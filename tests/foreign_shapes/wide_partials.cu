// expected: right  shape: partials are wider than elements, and so is dynamic shared memory
__global__ void add_up(const int *values, long long *sums, int count)
{
    extern __shared__ long long tile[];
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = place < count ? values[place] : 0;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = tile[0];
}
