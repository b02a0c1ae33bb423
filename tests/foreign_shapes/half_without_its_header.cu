// expected: right  shape: elements are of a type whose header another one brings along
#include <cublas_v2.h>
__global__ void total(const __nv_bfloat16 *in, float *out, int n)
{
    float mine = 0.0f;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
        mine += (float)in[at];
    for (int step = 16; step; step /= 2)
        mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, mine);
}
