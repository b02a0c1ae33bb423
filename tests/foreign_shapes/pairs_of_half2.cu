// expected: right  if: n is a multiple of 2 and its input is aligned to 16 bytes  shape: reads pairs of halves, and is told how many pairs
#include <cuda_fp16.h>

__global__ void sum(const half2 *x, float *out, int pairs)
{
    float part = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < pairs; k += gridDim.x * blockDim.x) {
        const float2 both = __half22float2(x[k]);
        part += both.x + both.y;
    }
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}
