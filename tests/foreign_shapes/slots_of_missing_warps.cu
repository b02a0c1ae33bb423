// expected: wrong  shape: 32 slots are read, and as many are written as the block has warps
__global__ void largest(const float *values, float *top, int count)
{
    __shared__ float slots[32];
    float mine = -1e38f;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine = fmaxf(mine, values[k]);
    for (int step = 16; step > 0; step /= 2) mine = fmaxf(mine, __shfl_down_sync(~0u, mine, step));
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    mine = slots[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) mine = fmaxf(mine, __shfl_down_sync(~0u, mine, step));
    if (threadIdx.x == 0) top[blockIdx.x] = mine;
}

void run(const float *values, float *tops, int count) { largest<<<count / 128, 128>>>(values, tops, count); }
