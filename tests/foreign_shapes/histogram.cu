// expected: refused  shape: elements choose the place that they are counted in
__global__ void histogram(const int *values, int *bins, int n)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) {
        int bin = values[at] % 16;
        atomicAdd(&bins[bin], 1);
    }
}
