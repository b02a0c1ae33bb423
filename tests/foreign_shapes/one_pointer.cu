// expected: refused  shape: one pointer: partials are written over the input
__global__ void fold(int *values, int count)
{
    extern __shared__ int cell[];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) values[blockIdx.x * blockDim.x] = cell[0];
}
