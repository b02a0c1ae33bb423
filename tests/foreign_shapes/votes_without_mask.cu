// expected: right
__global__ void add_warps(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    int mine = place < count ? values[place] : 0;
    if (!__any(mine)) return;
    for (int mask = warpSize / 2; mask > 0; mask /= 2) mine += __shfl_xor(mine, mask);
    if (threadIdx.x % warpSize == 0) atomicAdd(total, mine);
}
