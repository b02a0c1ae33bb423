// expected: right  if: its input is positive  shape: compares floats as if they were integers
__global__ void largest(const float *values, float *result, int count)
{
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        atomicMax(reinterpret_cast<int *>(result), __float_as_int(values[k]));
}
