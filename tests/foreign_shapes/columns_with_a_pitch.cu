// expected: right  shape: squares of the columns of a matrix whose rows are a pitch apart
__global__ void norms(float *mat, int width, int pitch, int height, float *norm)
{
    unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < width) {
        float value, sum = 0;
        for (int k = 0; k < height; k++) {
            value = mat[k * pitch + column];
            sum += value * value;
        }
        norm[column] = sum;
    }
}
