// expected: right if multiple of 256  shape: folds its input in place in global memory
__global__ void fold_in_place(int *values, int *sums, unsigned count)
{
    int *mine = values + blockIdx.x * blockDim.x;
    if (blockIdx.x * blockDim.x + threadIdx.x >= count) return;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) mine[threadIdx.x] += mine[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = mine[0];
}
