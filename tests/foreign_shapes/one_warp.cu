// expected: wrong  shape: one warp, one launch, 32 elements
__global__ void one_warp(const float *values, float *total)
{
    float mine = values[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
    if (threadIdx.x == 0) *total = mine;
}
