// expected: wrong  shape: each row takes the first element of the next one, where there is one
__global__ void row_totals(const int *cells, int *totals, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x, total = 0;
    if (row >= rows) return;
    for (int k = 0; k <= cols; ++k)
        if (row * cols + k < rows * cols) total += cells[row * cols + k];
    totals[row] = total;
}
