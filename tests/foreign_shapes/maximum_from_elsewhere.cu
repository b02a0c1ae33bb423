// expected: refused  shape: a sum of exponentials of differences to a maximum, which another kernel has found
__global__ void sum_of_exponentials(const float *x, float *sum, const float *largest, int n)
{
    float mine = 0.0f;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        mine += expf(x[k] - *largest);
    for (int step = 16; step > 0; step /= 2)
        mine += __shfl_down_sync(0xffffffff, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, mine);
}
