// expected: right  shape: sums magnitudes
__global__ void asum(const double *values, double *total, int count)
{
    double mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += fabs(values[k]);
    atomicAdd(total, mine);
}
