// expected: refused  shape: what is added up is no array, but a function of a count
__global__ void integral(double *result, double step, int n)
{
    double sum = 0.0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        sum += sin(k * step) * step;
    atomicAdd(result, sum);
}
