// expected: right  shape: repeats its work a hundred times in the kernel, as some do to time it
__global__ void again_and_again(const int *values, int *sums, int count)
{
    __shared__ int cell[1024];
    for (int again = 0; again < 100; ++again) {
        int mine = 0;
        for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
            mine += values[k];
        cell[threadIdx.x] = mine;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
        __syncthreads();
    }
}
