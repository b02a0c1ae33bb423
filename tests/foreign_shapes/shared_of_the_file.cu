// expected: right  shape: memory that a launch gives its size, declared outside of all kernels
extern __shared__ volatile int shared[];

__global__ void reduce(int *out, const int *in, int n, int threads)
{
    unsigned own = threadIdx.x, k = blockIdx.x * blockDim.x + own;
    shared[own] = k < n ? in[k] : 0;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (own < s)
            shared[own] += shared[own + s];
        __syncthreads();
    }
    if (own == 0)
        out[blockIdx.x] = shared[0];
}
