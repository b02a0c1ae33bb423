// expected: right  shape: blocks that share a row, and are told how many of its elements each takes
__global__ void sums_of_rows(const float *values, float *sums, int rows, int length, int TILE)
{
    extern __shared__ float cell[];
    values += blockIdx.y * (size_t)length + blockIdx.x * TILE;
    float mine = 0;
    for (int k = threadIdx.x; k < TILE; k += blockDim.x)
        if (k < length - (int)blockIdx.x * TILE) mine += values[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sums + blockIdx.y, cell[0]);
}
