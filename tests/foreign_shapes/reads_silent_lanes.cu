// expected: wrong  shape: the last shuffles read lanes that their mask leaves out
__global__ void fold(const float *values, float *sums, int count)
{
    __shared__ float table[32];
    float mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += values[k];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) table[threadIdx.x / 32] = mine;
    __syncthreads();
    unsigned warps = blockDim.x / 32, few = __ballot_sync(~0u, threadIdx.x < warps);
    if (threadIdx.x < warps) {
        mine = table[threadIdx.x];
        for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(few, mine, step);
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

void run(const float *values, float *sums, int count) { fold<<<64, 256>>>(values, sums, count); }
