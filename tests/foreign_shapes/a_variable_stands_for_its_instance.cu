// expected: wrong  shape: a variable stands for an instance for 128 threads, which is launched with 256
template <int THREADS> __global__ void sum_of(const int *values, int *total, int n)
{
    __shared__ int sums[THREADS];
    int t = threadIdx.x, sum = 0;
    for (int i = blockIdx.x * THREADS + t; i < n; i += gridDim.x * THREADS) sum += values[i];
    sums[t] = sum;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (t < step) sums[t] += sums[t + step];
        __syncthreads();
    }
    if (t == 0) atomicAdd(total, sums[0]);
}

int main()
{
    int *values, *total, n = 1000;
    auto kernel = sum_of<128>;
    kernel<<<64, 256>>>(values, total, n);
}
