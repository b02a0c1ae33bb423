// expected: right  if: its block has 1024 threads  shape: as many slots are read as the largest block has warps, and nobody says which block
__global__ void add_up(const float *values, float *total, int count)
{
    __shared__ float slots[32];
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = place < count ? values[place] : 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    mine = slots[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x == 0) atomicAdd(total, mine);
}
