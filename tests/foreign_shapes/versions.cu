// expected: right  shape: several versions of one kernel, each a whole reduction, and a warm-up
__global__ void warm(int *nothing) { if (threadIdx.x == 4096) *nothing = 1; }

__global__ void version_one(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

__global__ void version_two(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    int mine = place < count ? values[place] : 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}
