// expected: right  shape: one kernel goes on with what another has written, and both are no reduction
__global__ void block_sums(const int *values, int *sums, int count)
{
    __shared__ int table[128];
    int k = blockIdx.x * 128 + threadIdx.x;
    table[threadIdx.x] = k < count ? values[k] : 0;
    for (int step = 64; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) table[threadIdx.x] += table[threadIdx.x + step];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = table[0];
}

__global__ void smallest(const int *sums, int *least, int count)
{
    for (int k = threadIdx.x; k < count; k += 128) atomicMin(least, sums[k]);
}

void both(const int *values, int *sums, int *least, int count)
{
    int blocks = (count + 127) / 128;
    block_sums<<<blocks, 128>>>(values, sums, count);
    smallest<<<1, 128>>>(sums, least, blocks);
}
