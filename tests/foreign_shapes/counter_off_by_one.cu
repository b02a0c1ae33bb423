// expected: wrong  shape: the last block but one believes to be the last
__global__ void last_adds(const float *values, float *sums, unsigned *arrived, int count)
{
    __shared__ float cell[1024];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    sums[blockIdx.x] = cell[0];
    __threadfence();
    if (gridDim.x == 1 || atomicAdd(arrived, 1u) + 2 != gridDim.x) return;
    __threadfence();
    float all = 0;
    for (int k = 0; k < gridDim.x; ++k) all += ((volatile float *)sums)[k];
    sums[0] = all;
}
