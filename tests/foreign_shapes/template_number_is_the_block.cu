// expected: right  shape: how many threads there are is said by a number of the template alone
template <unsigned THREADS>
__global__ void block_sums(const int *values, int *sums, int n)
{
    extern __shared__ int cache[];
    unsigned place = blockIdx.x * THREADS + threadIdx.x;
    cache[threadIdx.x] = place < n ? values[place] : 0;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) cache[threadIdx.x] += cache[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cache[0];
}

void solve(const int *values, int *sums, int n, int threads)
{
    block_sums<512><<<(n + threads - 1) / threads, threads, threads * sizeof(int)>>>(values, sums, n);
}
