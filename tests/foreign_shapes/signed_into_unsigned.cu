// expected: right  if: its input is positive and its sums fit int32  shape: a sum of signed numbers in unsigned ones
__global__ void total(const int *in, int n, unsigned long long *out) {
    extern __shared__ unsigned sums[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, (unsigned long long)sums[0]);
}
