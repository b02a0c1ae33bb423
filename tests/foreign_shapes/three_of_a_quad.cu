// expected: wrong  shape: reads quads, and leaves out one of each
__global__ void quads(const float4 *x, float *out, int n)
{
    float part = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
        float4 v = x[k];
        part += v.x + v.y + v.z;
    }
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}
