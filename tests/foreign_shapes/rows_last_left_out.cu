// expected: wrong  shape: a block for each row, but for the last element of a row
__global__ void row_sums(const int *values, int *sums, int rows, int length)
{
    const int *row = values + size_t(blockIdx.x) * length;
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int mine = 0;
    for (int k = threadIdx.x; k < length - 1; k += blockDim.x) mine += row[k];
    atomicAdd(&total, mine);
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
