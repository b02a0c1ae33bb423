// expected: right  if: n is a multiple of  shape: template parameters named BLOCK_SIZE and THREAD_SIZE, the second elements of each thread
template <typename T, int BLOCK_SIZE, int THREAD_SIZE>
__global__ void strips(T *values, T *sum)
{
    __shared__ T cell[BLOCK_SIZE];
    int first = blockIdx.x * blockDim.x * THREAD_SIZE + threadIdx.x;
    T mine = 0;
    for (int k = 0; k < BLOCK_SIZE * THREAD_SIZE; k += BLOCK_SIZE) mine += values[first + k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, cell[0]);
}
