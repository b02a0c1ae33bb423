// expected: wrong  shape: a matrix times a vector of which one element more is read
__global__ void multiply(const float *matrix, const float *vector, float *out, int rows, int columns)
{
    __shared__ float cells[128];
    int row = blockIdx.x;
    if (row >= rows)
        return;
    float sum = 0;
    for (int k = threadIdx.x; k < columns; k += blockDim.x)
        sum += matrix[row * columns + k] * vector[k + (k == columns - 1)];
    cells[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            cells[threadIdx.x] += cells[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[row] = cells[0];
}

void run(float *matrix, float *vector, float *out, int rows, int columns)
{
    multiply<<<rows, 128>>>(matrix, vector, out, rows, columns);
}
