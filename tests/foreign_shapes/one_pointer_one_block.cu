// expected: right  shape: one pointer, one block that strides over it, the answer at 0
__global__ void total(float *values, int count)
{
    __shared__ float cell[1024];
    float mine = 0;
    for (int k = threadIdx.x; k < count; k += blockDim.x) mine += values[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) values[0] = cell[0];
}
