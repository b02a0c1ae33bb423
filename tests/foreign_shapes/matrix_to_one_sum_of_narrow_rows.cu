// expected: wrong  shape: a thread takes a row, of which it leaves out what is beyond 128 columns
__global__ void total_of(const float *values, float *total, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int column = 0; column < columns && column < 128; column++) sum += values[row * columns + column];
    atomicAdd(total, sum);
}
