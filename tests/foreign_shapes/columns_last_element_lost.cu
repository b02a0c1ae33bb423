// expected: wrong  shape: sums of columns, without the last element of each
__global__ void column_sums(const float *values, float *sums, int rows, int length)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= length) return;
    float mine = 0;
    for (int row = 0; row < rows - 1; ++row) mine += values[row * length + column];
    sums[column] = mine;
}
