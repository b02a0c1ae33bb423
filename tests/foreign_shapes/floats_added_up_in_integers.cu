// expected: refused  shape: a sum of floats in integers, which drop what is behind the point
__global__ void total_of(const float *values, int *total, int n)
{
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += values[i];
    atomicAdd(total, sum);
}
