// expected: right  if: it has at most 256 rows  shape: a sum for each column in shared memory that has room for 256 of them
__global__ void columns(const float *in, float *out, int cols, int rows)
{
    __shared__ float s[256];
    int c = threadIdx.x + blockIdx.x * blockDim.x;
    if (c >= cols) return;
    s[c] = in[c];
    for (int i = cols; i < cols * rows; i += cols) s[c] += in[c + i];
    out[c] = s[c];
}
void launch(const float *in, float *out, int cols, int rows) { columns<<<1, 256>>>(in, out, cols, rows); }
