// expected: right  shape: right only with the block that a constant of the file names
#define THREADS 512

__global__ void warp_table(const float *values, double *sums, size_t count)
{
    __shared__ double table[THREADS / 32];
    double mine = 0;
    for (size_t k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += values[k];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) table[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; ++warp) mine += table[warp];
        sums[blockIdx.x] = mine;
    }
}

void launch(const float *values, double *sums, size_t count)
{
    warp_table<<<128, THREADS>>>(values, sums, count);
}
