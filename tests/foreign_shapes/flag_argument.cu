// expected: right  shape: a further argument that says what to do
__global__ void sums(const float *values, float *sums, int count, bool average)
{
    extern __shared__ float cell[];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = average ? cell[0] / count : cell[0];
}
