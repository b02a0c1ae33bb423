// expected: wrong
__global__ void dot(const int *x, const int *y, int *size, int *sum)
{
    extern __shared__ int s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i + 1 < *size ? x[i] * y[i] : 0;
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride)
            s[threadIdx.x] += s[threadIdx.x + stride];
    }
    if (threadIdx.x == 0)
        atomicAdd(sum, s[0]);
}
