// expected: refused  shape: a loop takes many elements, and makes of each what it writes
__global__ void scaled(const float *in, const float *most, float *out, int n)
{
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
        out[at] = expf(in[at] - most[0]) * 2.0f;
}
