// expected: wrong  shape: elements of 64 bits pass through 32 before they are floats
__global__ void total(const unsigned long long *in, unsigned long long *out, int n) {
    __shared__ float sums[256];
    int mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) mine += in[i];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, (unsigned long long)sums[0]);
}

void launch(const unsigned long long *in, unsigned long long *out, int n) {
    cudaMemset(out, 0, sizeof(*out));
    total<<<16, 256>>>(in, out, n);
}
