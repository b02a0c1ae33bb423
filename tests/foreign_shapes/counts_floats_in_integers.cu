// expected: right  shape: how many floats are above a number, in integers
__global__ void above(const float *values, unsigned *count, int n)
{
    __shared__ unsigned found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && values[i] > 0.5f) atomicAdd(&found, 1u);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(count, found);
}
