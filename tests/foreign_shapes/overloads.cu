// expected: right  shape: two kernels of one name, by the type of their elements
__global__ void add_all(const float *values, float *total, int count)
{
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

__global__ void add_all(const int *values, int *total, int count)
{
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}
