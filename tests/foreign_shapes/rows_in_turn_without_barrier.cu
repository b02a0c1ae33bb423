// expected: wrong  shape: blocks that go on to further rows while others still read the last
__global__ void sums_of_rows(const float *values, float *sums, int rows, int length)
{
    __shared__ float cell[8];
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float mine = 0;
        for (int k = threadIdx.x; k < length; k += blockDim.x) mine += values[(size_t)row * length + k];
        for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
        if (threadIdx.x % 32 == 0) cell[threadIdx.x / 32] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int k = 1; k < 8; ++k) mine += cell[k];
            sums[row] = mine;
        }
    }
}

void host(const float *values, float *sums, int rows, int length)
{
    sums_of_rows<<<96, 256>>>(values, sums, rows, length);
}
