// expected: wrong  shape: half of those that are counted, and none of them among positive ones
__global__ void count_below(const int *values, int *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 2) atomicAdd(found, values[i] < 0);
}
