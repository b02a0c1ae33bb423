// expected: right  if: it has as many rows as elements in each  shape: one count that is both the number of columns and their length
__global__ void sums_of_columns(const float *square, float *sums, size_t side)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < side) {
        float mine = 0;
        for (size_t row = 0; row < side; row++) mine += square[column + side * row];
        sums[column] = mine;
    }
}
