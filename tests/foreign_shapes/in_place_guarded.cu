// expected: right  shape: each block folds its tile in place in global memory, however short it is
__global__ void fold_in_place(int *values, int *sums, unsigned count)
{
    const unsigned first = blockIdx.x * blockDim.x;
    int *mine = values + first;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && first + threadIdx.x + half < count)
            mine[threadIdx.x] += mine[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = mine[0];
}
