// expected: right  if: n is a multiple of  shape: a block's sum by CUB, which Thrust's headers bring along
#include <thrust/device_vector.h>

template <typename T, int BLOCK_SIZE>
__global__ void block_sums(T *values, T *sum)
{
    typedef cub::BlockReduce<T, BLOCK_SIZE> BlockReduce;
    __shared__ typename BlockReduce::TempStorage storage;
    T all = BlockReduce(storage).Sum(values[blockIdx.x * BLOCK_SIZE + threadIdx.x]);
    if (threadIdx.x == 0) atomicAdd(sum, all);
}
