// expected: wrong  shape: a barrier is missing where the last block is not full
__global__ void sums(const int *values, int *partial, int count)
{
    __shared__ int cell[256];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    bool full = (blockIdx.x + 1) * blockDim.x <= count;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        if (full || half == 128) __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = cell[0];
}
