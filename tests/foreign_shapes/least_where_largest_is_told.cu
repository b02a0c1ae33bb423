// expected: wrong  shape: a minimum in what is called the largest
__global__ void minmax(const float *values, float *max_out, int n) {
    __shared__ float kept[256];
    float best = INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x) best = fminf(best, values[i]);
    kept[threadIdx.x] = best;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) kept[threadIdx.x] = fminf(kept[threadIdx.x], kept[threadIdx.x + step]);
        __syncthreads();
    }
    if (threadIdx.x == 0) max_out[0] = kept[0];
}
