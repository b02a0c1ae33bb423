// expected: right  shape: a thread a row of a matrix whose rows are a pitch apart that is counted in bytes
__global__ void sum_rows(float *matrix, size_t pitch, int width, int height, float *out)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < height) {
        float *row = (float *)((char *)matrix + r * pitch);
        float s = 0;
        for (int c = 0; c < width; ++c)
            s += row[c];
        out[r] = s;
    }
}
