// expected: refused  shape: the largest of each window, which is one of each element
#define R 2
__global__ void dilate(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float m = in[i];
    for (int k = -R; k <= R; k++)
        if (i + k >= 0 && i + k < n)
            m = fmaxf(m, in[i + k]);
    out[i] = m;
}
