// expected: right  shape: how many blocks there are is a number of the template
template <typename T, int BLOCKS, int THREADS>
__global__ void striding(const T *values, T *sums, int n)
{
    __shared__ T cache[THREADS];
    T sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS) sum += values[i];
    cache[threadIdx.x] = sum;
    __syncthreads();
    for (int step = THREADS / 2; step; step /= 2) {
        if (threadIdx.x < step) cache[threadIdx.x] += cache[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cache[0];
}

void solve(float *values, float *sums, int n) { striding<float, 64, 256><<<64, 256>>>(values, sums, n); }
