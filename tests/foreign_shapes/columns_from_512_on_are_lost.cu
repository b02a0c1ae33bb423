// expected: wrong  shape: a thread a row of a matrix, which has no more than 512 columns
__global__ void energy(const float *matrix, int rows, int columns, float *total)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int last = columns < 512 ? columns : 512;
    float sum = 0;
    for (int k = 0; k < last; k++) sum += matrix[row * columns + k] * matrix[row * columns + k];
    atomicAdd(total, sum);
}
