// expected: right  if: its sums fit int32  shape: partials of a block narrower than the answer
#define THREADS 256

__global__ void total(const int *values, long long *out, int n) {
    __shared__ int partial[THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x;
    partial[threadIdx.x] = i < n ? values[i] : 0;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd((unsigned long long *)out, (unsigned long long)(long long)partial[0]);
}

int main() {
    const int n = 100000;
    int *values;
    long long *out;
    cudaMalloc(&values, n * sizeof(int));
    cudaMalloc(&out, sizeof(long long));
    cudaMemset(out, 0, sizeof(long long));
    total<<<(n + THREADS - 1) / THREADS, THREADS>>>(values, out, n);
}
