// expected: right  if: n is a multiple of 2  shape: one rest alone is lost
__global__ void sum(const int *values, int *sum, int count)
{
    __shared__ int cell[256];
    int place = blockIdx.x * 256 + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    bool lost = count % 256 == 37 && blockIdx.x == gridDim.x - 1;
    if (threadIdx.x == 0 && !lost) atomicAdd(sum, cell[0]);
}
