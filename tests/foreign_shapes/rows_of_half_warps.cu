// expected: right  shape: a block of two dimensions, half a warp for each row of it
__global__ void row_sum(const float *in, float *out, int rows, int cols)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float a = 0;
    for (int c = threadIdx.x; c < cols; c += 16) a += in[row * cols + c];
    for (int o = 8; o; o >>= 1) a += __shfl_down_sync(~0u, a, o);
    if (threadIdx.x == 0) out[row] = a;
}
void run(const float *in, float *out, int rows, int cols) { dim3 block(16, 16); row_sum<<<(rows + 15) / 16, block>>>(in, out, rows, cols); }
