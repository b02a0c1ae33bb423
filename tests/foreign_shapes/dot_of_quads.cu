// expected: right  if: n is a multiple of 4 and its input is aligned to 16 bytes  shape: reads quads of two arrays, and is told how many quads
__global__ void dot(const float4 *a, const float4 *b, float *out, int n4)
{
    float part = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n4; k += gridDim.x * blockDim.x) {
        float4 v = a[k], w = b[k];
        part += v.x * w.x + v.y * w.y + v.z * w.z + v.w * w.w;
    }
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}
