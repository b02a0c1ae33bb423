// expected: wrong  shape: one count of columns and of their length, and the last row is left out
__global__ void sums_of_columns(const float *square, float *sums, size_t side)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < side) {
        float mine = 0;
        for (size_t row = 0; row + 1 < side; row++) mine += square[column + side * row];
        sums[column] = mine;
    }
}
