// expected: right  shape: what a comparison gives is added
__global__ void count_equal(const int *values, int *found, int n, int wanted) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(found, values[i] == wanted);
}
