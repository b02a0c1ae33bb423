// expected: right  shape: a thread for each row
__global__ void row_sums(const double *values, double *sums, int height, int width)
{
    int y = blockIdx.x * blockDim.x + threadIdx.x;
    double mine = 0;
    if (y < height) {
        for (int x = 0; x < width; ++x) mine += values[(long)y * width + x];
        sums[y] = mine;
    }
}
