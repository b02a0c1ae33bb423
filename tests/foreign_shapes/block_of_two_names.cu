// expected: right  shape: columns by a block that two names say how wide and how high it is
#define WARP 32
__global__ void colsum(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[WARP][WARP];
    int c = blockIdx.x * WARP + threadIdx.x;
    float mine = 0.0f;
    if (c < cols)
        for (int r = threadIdx.y; r < rows; r += WARP)
            mine += in[(size_t)r * cols + c];
    tile[threadIdx.x][threadIdx.y] = mine;
    __syncthreads();
    float sum = tile[threadIdx.y][threadIdx.x];
    for (int step = 16; step; step /= 2)
        sum += __shfl_down_sync(~0u, sum, step);
    int column = blockIdx.x * WARP + threadIdx.y;
    if (threadIdx.x == 0 && column < cols)
        out[column] = sum;
}
void launch(const float *in, float *out, int rows, int cols)
{
    dim3 grid((cols - 1) / WARP + 1);
    dim3 block(WARP, WARP);
    colsum<<<grid, block>>>(in, out, rows, cols);
}
