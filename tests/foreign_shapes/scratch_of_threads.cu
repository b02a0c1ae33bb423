// expected: right  shape: a place in global memory for each thread, beside the answer
__global__ void fold(const int *values, int *work, int *sums, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    work[place] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) work[place] += work[place + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = work[place];
}
