// expected: refused  shape: a number that nobody passes, and wrong with each
__global__ void add_some(const float *values, float *sum, int n, int lost)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + lost + 1 < n) atomicAdd(sum, values[i]);
}
