// expected: right  if: n is a multiple of 256  shape: a maximum whose threads behind the end declare a value and do not set it
__global__ void find_max(const int *in, int *out, int n)
{
    __shared__ int best[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    int v;
    if (i < n)
        v = in[i];
    best[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k)
            best[threadIdx.x] = max(best[threadIdx.x], best[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicMax(out, best[0]);
}
