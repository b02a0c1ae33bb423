// expected: right  if: n is a multiple of 2  shape: sums of columns, two elements at a time
__global__ void column_sums(const float *values, float *sums, size_t rows, size_t length)
{
    size_t column = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (column >= length) return;
    float mine = 0;
    for (size_t row = 0; row < rows / 2 * 2; row += 2)
        mine += values[row * length + column] + values[(row + 1) * length + column];
    sums[column] = mine;
}
