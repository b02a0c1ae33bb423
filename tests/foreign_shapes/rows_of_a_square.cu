// expected: right  if: it has as many rows as elements in each  shape: one count that is both the number of rows and their length
__global__ void sums_of_rows(const float *square, float *sums, size_t side)
{
    __shared__ float cell[256];
    if (blockIdx.x >= side) return;
    float mine = 0;
    for (size_t k = threadIdx.x; k < side; k += blockDim.x) mine += square[blockIdx.x * side + k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}
