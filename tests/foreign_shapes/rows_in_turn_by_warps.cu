// expected: right  shape: warps that go on to further rows, in as many blocks as are launched
__global__ void sums_of_rows(const float *values, float *sums, int rows, int length)
{
    int warps = gridDim.x * blockDim.x / 32;
    for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
        float mine = 0;
        for (int k = threadIdx.x % 32; k < length; k += 32) mine += values[(size_t)row * length + k];
        for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
        if (threadIdx.x % 32 == 0) sums[row] = mine;
    }
}
