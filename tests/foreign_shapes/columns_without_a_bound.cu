// expected: right  if: it has at most 2147483647 elements and the number of its rows is a multiple of 32  shape: 32 columns a block of 32 by 8 threads, none of which looks whether its column is there
__global__ void columns(const float *in, float *out, int rows, int cols)
{
    __shared__ float s[8][33];
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    float a = 0.0f;
    for (int r = threadIdx.y; r < rows; r += blockDim.y) a += in[r * cols + c];
    s[threadIdx.y][threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.y / 2; k; k /= 2) { if (threadIdx.y < k) s[threadIdx.y][threadIdx.x] += s[threadIdx.y + k][threadIdx.x]; __syncthreads(); }
    if (threadIdx.y == 0) out[c] = s[0][threadIdx.x];
}
void launch(const float *in, float *out, int rows, int cols)
{
    columns<<<cols / 32, dim3(32, 8)>>>(in, out, rows, cols);
}
