// expected: right  shape: one block, which takes an element a thread, launched with as many as there are
__global__ void fold(const float *values, float *total, int count)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = threadIdx.x < count ? values[threadIdx.x] : 0;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
    }
    if (threadIdx.x == 0) *total = tile[0];
}

void run(const float *values, float *total, int threads)
{
    fold<<<1, threads, threads * sizeof(float)>>>(values, total, threads);
}
