// expected: right  if: its input is positive  shape: batches in the second dimension, a block for a tile of each
__device__ static float larger(float *address, float value) {
    int *bits = (int *)address, old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}

__global__ void largest(float *values, float *result, int N) {
    __shared__ float best[256];
    int batch = blockIdx.y, place = blockDim.x * blockIdx.x + threadIdx.x;
    best[threadIdx.x] = place < N ? values[batch * N + place] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + step]);
        __syncthreads();
    }
    if (threadIdx.x == 0) larger(&result[batch], best[0]);
}
