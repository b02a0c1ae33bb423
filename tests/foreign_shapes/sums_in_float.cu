// expected: right  if: nothing is lost by rounding to float32  shape: whole numbers that are summed as floats
__global__ void total(const int *in, int *out, int n) {
    __shared__ float sums[256];
    float mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) mine += in[i];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, (int)sums[0]);
}

void launch(const int *in, int *out, int n) {
    cudaMemset(out, 0, sizeof(*out));
    total<<<16, 256>>>(in, out, n);
}
