// expected: right  shape: elements of type long
__global__ void add_long(const long *values, long *sums, int count)
{
    extern __shared__ long cell[];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}
