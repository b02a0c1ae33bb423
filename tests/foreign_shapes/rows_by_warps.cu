// expected: right  shape: a warp for each row
__global__ void row_sums(float *sums, const float *values, unsigned length, unsigned rows)
{
    unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= rows) return;
    float mine = 0;
    for (unsigned k = lane; k < length; k += 32) mine += values[size_t(row) * length + k];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (lane == 0) sums[row] = mine;
}
