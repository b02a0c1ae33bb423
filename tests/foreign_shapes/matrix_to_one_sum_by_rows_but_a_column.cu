// expected: wrong  shape: a thread takes a row, and all add to one place
__global__ void total_of(int columns, int rows, const float *values, float *total)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows)
        for (int i = 1; i < columns; i++) atomicAdd(total, values[columns * row + i]);
}
