// expected: right  shape: the first whole number is no count; the second bounds the index
__global__ void powers(const float *x, float *out, int power, int numElements)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    float part = 0;
    if (k < numElements)
        part = power == 2 ? x[k] * x[k] : x[k];
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}

void launch(const float *x, float *out, int n) { powers<<<(n + 255) / 256, 256>>>(x, out, 2, n); }
