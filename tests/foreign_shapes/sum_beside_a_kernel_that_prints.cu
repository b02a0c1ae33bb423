// expected: right  shape: a sum, and a kernel that prints what it is given and writes nothing
#include <cstdio>

__global__ void show(double *x)
{
    printf("%f ", x[threadIdx.x]);
}

__global__ void add(const double *x, double *sum, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n)
        atomicAdd(sum, x[k]);
}
