// expected: right  shape: a block's sum by CUB, guarded at the end, with a mode that its launch picks
#include <cub/cub.cuh>

template <int THREADS>
__global__ void add_up(const float *values, float *sums, int count, int mode)
{
    typedef cub::BlockReduce<float, THREADS> Blocks;
    __shared__ typename Blocks::TempStorage kept;
    int place = blockIdx.x * THREADS + threadIdx.x;
    float mine = mode == 2 && place < count ? values[place] : 0;
    float sum = Blocks(kept).Sum(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

void launch(const float *values, float *sums, int count)
{
    int mode = 2;
    add_up<128><<<(count + 127) / 128, 128>>>(values, sums, count, mode);
}
