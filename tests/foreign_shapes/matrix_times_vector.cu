// expected: refused  shape: each row of a matrix is multiplied by the same vector
__global__ void product(const float *matrix, const float *vector, float *out, int rows, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k)
        sum += matrix[row * n + k] * vector[k];
    out[row] = sum;
}
