// expected: wrong  shape: half of those that are counted, beyond all that is tried otherwise
__global__ void count_beyond(const float *values, float *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 2) atomicAdd(found, values[i] > 1e6f ? 1.0f : 0.0f);
}
