// expected: right  if: it has at most 16384 elements  shape: so many blocks for any count, which do not stride
__global__ void sum_once(const int *values, int *sum, int count)
{
    __shared__ int cell[256];
    int place = blockIdx.x * 256 + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : 0;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, cell[0]);
}

void launch(const int *values, int *sum, int count)
{
    sum_once<<<64, 256>>>(values, sum, count);
}
