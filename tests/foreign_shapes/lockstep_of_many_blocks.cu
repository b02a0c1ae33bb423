// expected: wrong  shape: from 30 blocks on the last warp relies on lockstep
__global__ void sums(const int *values, int *partial, int count)
{
    __shared__ int cell[256];
    int t = threadIdx.x, place = blockIdx.x * blockDim.x + t;
    cell[t] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = 128; half > 16; half /= 2) {
        if (t < half) cell[t] += cell[t + half];
        __syncthreads();
    }
    for (int half = 16; half > 0; half /= 2) {
        if (t < half) cell[t] += cell[t + half];
        if (gridDim.x < 30) __syncthreads();
    }
    if (t == 0) partial[blockIdx.x] = cell[0];
}
