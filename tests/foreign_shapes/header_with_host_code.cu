// expected: right  shape: header beside the file that holds host functions
#include "host_tools.h"

__global__ void add_all(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

int main()
{
    int *total;
    check(cudaMalloc(&total, sizeof(int)));
    return numbers(3).size() != 3;
}
