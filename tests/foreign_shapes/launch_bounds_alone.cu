// expected: right  shape: nothing but its launch bounds says how many threads a block has
#define THREADS 64

__global__ void __launch_bounds__(THREADS) stripe_sums(const int *values, int *sum, int count)
{
    __shared__ int table[THREADS];
    int mine = 0;
    for (int k = blockIdx.x * THREADS + threadIdx.x; k < count; k += gridDim.x * THREADS)
        mine += values[k];
    table[threadIdx.x] = mine;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) table[threadIdx.x] += table[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, table[0]);
}
