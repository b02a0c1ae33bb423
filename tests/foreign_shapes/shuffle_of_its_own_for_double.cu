// expected: right  shape: a shuffle of doubles by two of ints, as before CUDA 9
__device__ inline double __shfl_down(double value, unsigned by, int width = 32)
{
    int2 halves = *reinterpret_cast<int2 *>(&value);
    halves.x = __shfl_down(halves.x, by, width);
    halves.y = __shfl_down(halves.y, by, width);
    return *reinterpret_cast<double *>(&halves);
}

__global__ void add_warps(const double *values, double *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    double mine = place < count ? values[place] : 0.0;
    for (int step = warpSize / 2; step > 0; step /= 2) mine += __shfl_down(mine, step);
    if (threadIdx.x % warpSize == 0) atomicAdd(total, mine);
}
