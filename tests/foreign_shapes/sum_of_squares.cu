// expected: right  shape: squares each element before it is summed
__global__ void squares(const float *values, float *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = place < count ? values[place] * values[place] : 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}
