// expected: refused  shape: a constant of the build command that the file does not define
__global__ void fold(const int *values, int *total, int count)
{
    __shared__ int cell[TILE];
    int place = blockIdx.x * TILE + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, cell[0]);
}
