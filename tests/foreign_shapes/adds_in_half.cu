// expected: right  if: nothing is lost by rounding to float16  shape: threads add up halves, of which each addition is rounded
#include <cuda_fp16.h>

__global__ void sum(const half *x, half *out, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n)
        atomicAdd(out, x[k]);
}
