// expected: right  shape: two places in shared memory a thread, as many as a variable of the host says
__global__ void halves(float *in, float *out, int n) {
    extern __shared__ float sums[];
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid, half = n / 2;
    sums[tid] = i < half ? in[i] : 0;
    sums[tid + blockDim.x] = i + half < n ? in[i + half] : 0;
    __syncthreads();
    for (unsigned int step = blockDim.x; step > 0; step /= 2) {
        if (tid < step) sums[tid] += sums[tid + step];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sums[0];
}

void launch(float *in, float *out, int n, int width) {
    dim3 block(width), grid((n + width - 1) / width);
    block.x /= 2;
    halves<<<grid, block, width * sizeof(float)>>>(in, out, n);
}
