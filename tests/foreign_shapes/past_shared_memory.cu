// expected: wrong  shape: every warp folds as if it were the first: the last reads past the array
__global__ void fold(const int *values, int *total, int count)
{
    extern __shared__ int cell[];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    int mine = cell[threadIdx.x] + cell[threadIdx.x + 32];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 64 == 0) atomicAdd(total, mine);
}
