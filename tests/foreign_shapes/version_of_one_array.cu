// expected: right  shape: a second array that a version of it reads, and a header in angles
#include <of_a_warp.h>

template <bool MASKED>
__global__ void sum(const float *x, const float *mask, float *out, int n)
{
    float mine = 0.0f;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
        if constexpr (MASKED)
            mine += mask[k] > 0.0f ? x[k] : 0.0f;
        else
            mine += x[k];
    }
    mine = of_a_warp(mine);
    if (threadIdx.x % warpSize == 0)
        atomicAdd(out, mine);
}
