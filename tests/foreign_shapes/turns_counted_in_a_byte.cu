// expected: wrong  shape: a loop that ends after as many turns as a byte counts
__global__ void total(const int *values, int *sum, int count)
{
    const unsigned char most = 255;
    int mine = 0, at = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned char turn = 0; turn < most && at < count; turn++, at += gridDim.x * blockDim.x)
        mine += values[at];
    for (int lanes = 16; lanes > 0; lanes /= 2)
        mine += __shfl_down_sync(0xffffffff, mine, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, mine);
}

void launch(const int *values, int *sum, int count)
{
    total<<<64, 256>>>(values, sum, count);
}
