// expected: right  shape: means of rows
__global__ void average(const float *values, float *means, int rows, int length)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int k = 0; k < length; ++k) sum += values[row * length + k];
    means[row] = sum / length;
}
