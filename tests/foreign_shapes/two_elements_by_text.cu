// expected: right  shape: how many elements a thread takes is a template parameter without effect
template <int PER_THREAD = 2> __global__ void fold(const float *values, float *sums, int count)
{
    extern __shared__ float tile[];
    const int place = blockIdx.x * blockDim.x * PER_THREAD + threadIdx.x;
    tile[threadIdx.x] = (place < count ? values[place] : 0)
        + (place + blockDim.x < count ? values[place + blockDim.x] : 0);
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = tile[0];
}
