// expected: right  shape: a block for each column
__global__ void column_max(const int *values, int *largest, int rows, size_t length)
{
    __shared__ int found[256];
    int mine = -2147483647 - 1;
    if (blockIdx.x >= length) return;
    for (size_t row = threadIdx.x; row < rows; row += blockDim.x)
        mine = max(mine, values[row * length + blockIdx.x]);
    found[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) found[threadIdx.x] = max(found[threadIdx.x], found[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) largest[blockIdx.x] = found[0];
}
