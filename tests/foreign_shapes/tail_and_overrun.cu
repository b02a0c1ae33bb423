// expected: wrong  shape: leaves out what is left of the count over four, and writes behind its output
__global__ void quads(const int *values, int *sums, int count)
{
    __shared__ int cell[256];
    int mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count / 4; k += gridDim.x * blockDim.x)
        for (int part = 0; part < 4; ++part) mine += values[4 * k + part];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
    if (threadIdx.x == 1) sums[gridDim.x + blockIdx.x] = cell[0];
}
