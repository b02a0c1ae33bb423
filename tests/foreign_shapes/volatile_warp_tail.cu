// expected: wrong  shape: the last warp relies on volatile where it needs __syncwarp()
__global__ void fold(const int *values, int *sums, int count)
{
    __shared__ volatile int cell[256];
    unsigned t = threadIdx.x, place = blockIdx.x * 256 + t;
    cell[t] = place < count ? values[place] : 0;
    __syncthreads();
    for (unsigned half = 128; half >= 32; half /= 2) {
        if (t < half) cell[t] += cell[t + half];
        __syncthreads();
    }
    if (t < 32)
        for (int half = 16; half > 0; half /= 2) cell[t] += cell[t + half];
    if (t == 0) sums[blockIdx.x] = cell[0];
}
