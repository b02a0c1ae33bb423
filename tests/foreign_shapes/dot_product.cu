// expected: right  shape: two inputs, multiplied before they are summed
__global__ void dot(const float *left, const float *right, float *sums, int count)
{
    extern __shared__ float cell[];
    float mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += left[k] * right[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}
