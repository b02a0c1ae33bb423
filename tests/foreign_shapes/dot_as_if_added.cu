// expected: wrong  shape: two inputs, added and not multiplied
__global__ void both(const float *left, const float *right, float *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = place < count ? left[place] + right[place] : 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}
