// expected: right  shape: a block of each row, which is counted in the second dimension
__global__ void largest_of_rows(const int *matrix, int *largest, size_t columns)
{
    __shared__ int cell[128];
    int most = INT_MIN;
    for (size_t k = threadIdx.x; k < columns; k += blockDim.x)
        most = max(most, matrix[blockIdx.y * columns + k]);
    cell[threadIdx.x] = most;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] = max(cell[threadIdx.x], cell[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) largest[blockIdx.y] = cell[0];
}

void launch(const int *matrix, int *largest, size_t columns, int rows)
{
    largest_of_rows<<<dim3(1, rows), 128>>>(matrix, largest, columns);
}
