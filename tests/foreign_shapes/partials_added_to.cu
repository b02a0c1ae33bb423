// expected: right  shape: a block adds its sum to its place, which the host has cleared
__global__ void dot(const double *a, const double *b, double *partials, int n)
{
    __shared__ double cache[256];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cache[threadIdx.x] = place < n ? a[place] * b[place] : 0.0;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride) cache[threadIdx.x] += cache[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] += cache[0];
}
