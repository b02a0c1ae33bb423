// expected: right  shape: a third pointer: a counter of the blocks that have arrived
__global__ void last_adds(const float *values, float *sums, unsigned *arrived, int count)
{
    __shared__ bool last;
    float mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += values[k];
    extern __shared__ float cell[];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = cell[0];
        __threadfence();
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        float all = 0;
        for (int k = 0; k < gridDim.x; ++k) all += ((volatile float *)sums)[k];
        sums[0] = all;
    }
}
