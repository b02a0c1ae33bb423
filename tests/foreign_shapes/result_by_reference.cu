// expected: right if multiple of 256  shape: writes its result through a reference
__global__ void add_to(int &total, const int *values)
{
    atomicAdd(&total, values[blockIdx.x * blockDim.x + threadIdx.x]);
}
