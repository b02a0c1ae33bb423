// expected: wrong  shape: threads add to a partial of their block, all but the last of them
__global__ void add(const float *x, float *partials, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n - 1)
        atomicAdd(&partials[blockIdx.x], x[k]);
}
