// expected: right
__global__ void count_equal(const int *input, int *output, int n, int value)
{
    int found = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        if (input[i] == value)
            found++;
    for (int offset = 16; offset > 0; offset /= 2)
        found += __shfl_down_sync(0xffffffffu, found, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(output, found);
}
