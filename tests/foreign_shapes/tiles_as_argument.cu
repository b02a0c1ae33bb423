// expected: right  shape: how many tiles a block takes is an argument
__global__ void fold(float *values, float *sums, unsigned count, unsigned factor)
{
    __shared__ float cell[1024];
    unsigned place = blockIdx.x * blockDim.x * factor + threadIdx.x;
    float mine = 0;
    for (unsigned k = 0; k < factor && place + k * blockDim.x < count; ++k)
        mine += values[place + k * blockDim.x];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}
