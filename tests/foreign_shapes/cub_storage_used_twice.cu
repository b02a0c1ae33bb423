// expected: wrong  shape: CUB's shared memory used twice without a barrier between
#include <cub/block/block_reduce.cuh>

__global__ void twice(const float *values, float *sums, int count)
{
    typedef cub::BlockReduce<float, 256> Blocks;
    __shared__ Blocks::TempStorage kept;
    int place = blockIdx.x * 512 + threadIdx.x;
    float first = Blocks(kept).Sum(place < count ? values[place] : 0.0f);
    float second = Blocks(kept).Sum(place + 256 < count ? values[place + 256] : 0.0f);
    if (threadIdx.x == 0) sums[blockIdx.x] = first + second;
}

void launch(const float *values, float *sums, int count)
{
    twice<<<(count + 511) / 512, 256>>>(values, sums, count);
}
