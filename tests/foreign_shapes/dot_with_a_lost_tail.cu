// expected: wrong  shape: two inputs, of which the second has its last element left out
__global__ void dot(const float *left, const float *right, float *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = place < count ? left[place] * (place < count - 1 ? right[place] : 1) : 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}
