// expected: right  if: n is a multiple of 4 and its input is aligned to 16 bytes  shape: reads quads, of which the text makes the count
__global__ void quads(const float4 *x, float *out, int n)
{
    float part = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n / 4; k += gridDim.x * blockDim.x) {
        float4 v = x[k];
        part += v.x + v.y + v.z + v.w;
    }
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}
