// expected: wrong  shape: a thread for each row finds a place in it, and never looks at the last element
__global__ void argmin(const float *x, int *index, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int best = 0;
    for (int i = 1; i < cols - 1; i++)
        if (x[row * cols + i] < x[row * cols + best]) best = i;
    index[row] = best;
}
void launch(const float *x, int *index, int rows, int cols) { argmin<<<(rows + 255) / 256, 256>>>(x, index, rows, cols); }
