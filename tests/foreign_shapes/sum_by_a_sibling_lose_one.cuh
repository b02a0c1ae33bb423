// expected: wrong  shape: the last element is lost in a header that calls what another one beside it defines
#pragma once

__global__ void sum(const float *in, float *out, int n)
{
    float mine = 0.0f;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n - 1; k += gridDim.x * blockDim.x)
        mine += __ldg(in + k);
    mine = of_a_warp(mine);
    if (threadIdx.x % warpSize == 0)
        atomicAdd(out, mine);
}
