// expected: wrong  shape: leaves out what is left of the count over four, and lacks a barrier
__global__ void quads(const int *values, int *total, int count)
{
    __shared__ int cell[256];
    int mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count / 4; k += gridDim.x * blockDim.x)
        for (int part = 0; part < 4; ++part) mine += values[4 * k + part];
    cell[threadIdx.x] = mine;
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, cell[0]);
}
