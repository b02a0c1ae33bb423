// expected: wrong  shape: a block full of what is counted is 256 of them, which a byte does not hold
__global__ void occurrences(const int *values, int *found, int n, int wanted)
{
    __shared__ unsigned char counts[256];
    int place = blockIdx.x * 256 + threadIdx.x;
    counts[threadIdx.x] = place < n && values[place] == wanted;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) counts[threadIdx.x] += counts[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(found, counts[0]);
}
