// expected: right  shape: how far each row of a matrix is from one vector
__global__ void distances(const float *matrix, const float *vector, float *out, int rows, int columns)
{
    __shared__ float cells[128];
    int row = blockIdx.x;
    if (row >= rows)
        return;
    float sum = 0;
    for (int k = threadIdx.x; k < columns; k += blockDim.x)
        sum += (matrix[row * columns + k] - vector[k]) * (matrix[row * columns + k] - vector[k]);
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
    distances<<<rows, 128>>>(matrix, vector, out, rows, columns);
}
