// expected: right  shape: two kernels of one name, of which one takes more parameters
__global__ void rows(const float *in, float *out, int count, int length)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= count) return;
    float a = 0.0f;
    for (int i = 0; i < length; i++) a += in[r * length + i];
    out[r] = a / length;
}
__global__ void rows(const float *in, float *out, int count, int length, float scale)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= count) return;
    float a = 0.0f;
    for (int i = 0; i < length; i++) a += in[r * length + i];
    out[r] = scale * a;
}
