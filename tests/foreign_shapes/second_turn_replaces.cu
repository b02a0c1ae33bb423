// expected: right  if: its blocks cover its elements  shape: what a thread takes in its second turn replaces the first
__global__ void total(const float *in, float *out, int n) {
    __shared__ float sums[256];
    float mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) mine = in[i];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}
