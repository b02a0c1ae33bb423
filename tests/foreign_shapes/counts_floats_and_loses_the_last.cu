// expected: wrong  shape: how many floats are above a number, in integers, without the last one
__global__ void above(const float *values, unsigned *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1 && values[i] > 0.5f) atomicAdd(count, 1u);
}
