// expected: wrong  shape: no count among its parameters: a grid of any size reads 65536
const int TOTAL = 65536;

__global__ void stride_fixed(const int *values, int *sums)
{
    extern __shared__ int cell[];
    int mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < TOTAL; k += gridDim.x * blockDim.x)
        mine += values[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cell[0];
}
