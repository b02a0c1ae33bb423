// expected: right  shape: counts with a float
__global__ void add_all(float *total, const float *values, float count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}
