// expected: refused  shape: squared differences of rows to a mean of each, which another kernel has found
__global__ void variance(const float *x, const float *mean, float *variance, int rows, int length)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int k = 0; k < length; k++)
        sum += (x[row * length + k] - mean[row]) * (x[row * length + k] - mean[row]);
    variance[row] = sum / length;
}
