// expected: right  shape: types with short names, declared in a header that is not there
#include "my_types.h"
template <typename T, u32 block_dim>
__global__ void reduce(u64 count, const T *input, T *output)
{
    __shared__ T cell[block_dim];
    T sum = 0;
    for (u64 i = (u64)blockIdx.x * block_dim + threadIdx.x; i < count; i += (u64)gridDim.x * block_dim)
        sum += input[i];
    cell[threadIdx.x] = sum;
    __syncthreads();
    for (u32 s = block_dim / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s)
            cell[threadIdx.x] += cell[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(output, cell[0]);
}
