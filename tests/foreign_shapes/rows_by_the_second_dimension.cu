// expected: right  shape: blocks of a row lie side by side, rows lie in the second dimension
__global__ void sums_of_rows(const float *matrix, float *sums, int rows, int columns)
{
    __shared__ float cell[256];
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = column < columns ? matrix[blockIdx.y * columns + column] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(&sums[blockIdx.y], cell[0]);
}

void launch(const float *matrix, float *sums, int rows, int columns)
{
    cudaMemset(sums, 0, rows * sizeof(float));
    sums_of_rows<<<dim3((columns + 255) / 256, rows), 256>>>(matrix, sums, rows, columns);
}
