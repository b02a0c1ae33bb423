// expected: wrong  shape: halves blocks of 96 threads, in which a function launches it that is given it
template <typename Kernel>
void launch(Kernel kernel, int blocks, int threads, size_t bytes, const int *values, int *total, int n)
{
    kernel<<<blocks, threads, bytes>>>(values, total, n);
}

__global__ void halves(const int *values, int *total, int n)
{
    extern __shared__ int sums[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sums[t] = i < n ? values[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (t < step) sums[t] += sums[t + step];
        __syncthreads();
    }
    if (t == 0) atomicAdd(total, sums[0]);
}

int main()
{
    int *values, *total, n = 1000000, threads = 96;
    launch(halves, (n + threads - 1) / threads, threads, threads * sizeof(int), values, total, n);
}
