// expected: right  if: its input is aligned to 16 bytes  shape: reads half2, and what is left alone; adds up in 32 bits
#include <cuda_fp16.h>

__global__ void add_halves(const half *values, float *total, int count)
{
    const half2 *pairs = reinterpret_cast<const half2 *>(values);
    float mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count / 2; k += gridDim.x * blockDim.x) {
        const float2 both = __half22float2(pairs[k]);
        mine += both.x + both.y;
    }
    if (count % 2 && blockIdx.x == 0 && threadIdx.x == 0) mine += __half2float(values[count - 1]);
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}
