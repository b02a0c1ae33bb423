// expected: wrong  shape: a number of its own for a count, which is no multiple of its block
// says: right for n = 1000 alone, which --sizes-only --n 1000 says
#define LENGTH 1000
#define THREADS 128
__global__ void sum_of(const double *values, double *total)
{
    __shared__ double sums[THREADS];
    int t = threadIdx.x, i = blockIdx.x * THREADS + t;
    sums[t] = i < LENGTH ? values[i] : 0;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (t < step) sums[t] += sums[t + step];
        __syncthreads();
    }
    if (t == 0) atomicAdd(total, sums[0]);
}

int main()
{
    double *values, *total;
    sum_of<<<(LENGTH + THREADS - 1) / THREADS, THREADS>>>(values, total);
}
