// expected: wrong  shape: values that are rounded one by one are added up, but for the last
__global__ void exponentials(const float *in, float *out, int n)
{
    float mine = 0.0f;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n - 1; at += gridDim.x * blockDim.x)
        mine += expf(in[at]);
    for (int step = 16; step; step /= 2)
        mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, mine);
}
