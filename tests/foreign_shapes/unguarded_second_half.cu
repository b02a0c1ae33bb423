// expected: right  if: n is a multiple of 512  shape: takes a count, but reads a second half of each tile unguarded
__global__ void pairs(const int *values, int *sums, unsigned count)
{
    extern __shared__ int cell[];
    unsigned place = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    cell[threadIdx.x] = 0;
    for (; place < count; place += gridDim.x * blockDim.x * 2)
        cell[threadIdx.x] += values[place] + values[place + blockDim.x];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}
