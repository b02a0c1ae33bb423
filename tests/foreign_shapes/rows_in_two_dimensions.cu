// expected: right  shape: a block of two dimensions, a warp for each row of it
__global__ void rows_by_warp(const float *values, float *sums, int rows, int length)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float mine = 0;
    for (int k = threadIdx.x; k < length; k += blockDim.x) mine += values[row * length + k];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x == 0) sums[row] = mine;
}
