// expected: right  shape: two kernels that are stages of one reduction
__global__ void partial_sums(const float *values, float *partials, int count)
{
    extern __shared__ float cell[];
    float mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += values[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = cell[0];
}

__global__ void sum_of_partials(const float *partials, float *total, int blocks)
{
    float all = 0;
    for (int k = 0; k < blocks; ++k) all += partials[k];
    *total = all;
}

void sum(const float *values, float *partials, float *total, int count)
{
    partial_sums<<<64, 256, 256 * sizeof(float)>>>(values, partials, count);
    sum_of_partials<<<1, 1>>>(partials, total, 64);
}
