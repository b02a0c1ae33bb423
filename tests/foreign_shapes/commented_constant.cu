// expected: right  if: n is a multiple of 256  shape: a block of a macro with a remark behind it
#define THREADS 128 // as many as warps have room

__global__ void pair_sums(const float *values, float *sums, int count)
{
    __shared__ float table[2 * THREADS];
    int first = blockIdx.x * 2 * THREADS, mine = threadIdx.x;
    if (first + mine < count) table[mine] = values[first + mine];
    if (first + THREADS + mine < count) table[THREADS + mine] = values[first + THREADS + mine];
    for (int step = THREADS; step > 0; step /= 2) {
        __syncthreads();
        if (mine < step) table[mine] += table[mine + step];
    }
    if (mine == 0) sums[blockIdx.x] = table[0];
}
