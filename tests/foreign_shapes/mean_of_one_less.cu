// expected: wrong  shape: each thread adds its share of a mean, as if there were one element fewer
#define SQUARE(x) ((x) * (x))
__global__ void loss(const float *guess, const float *truth, float *mean, int n)
{
    float mine = 0.0f;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
        mine += SQUARE(guess[at] - truth[at]) / (n - 1);
    for (int step = 16; step; step /= 2)
        mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(mean, mine);
}
