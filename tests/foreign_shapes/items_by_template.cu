// expected: right  if: n is a multiple of  shape: a template parameter named PER_THREAD with a count that is not looked at
template <unsigned blockSize, int NUM_PER_THREAD>
__global__ void strips(const float *values, float *sums, unsigned count)
{
    extern __shared__ float cell[];
    const float *strip = values + blockIdx.x * blockSize * NUM_PER_THREAD;
    float mine = 0;
    for (int k = 0; k < NUM_PER_THREAD; ++k) mine += strip[k * blockSize + threadIdx.x];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}

void launch(const float *values, float *sums, unsigned count)
{
    strips<256, 4><<<count / 1024, 256, 1024>>>(values, sums, count);
}
