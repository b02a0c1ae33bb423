// expected: right  shape: the type of such memory stands in front of the word, and is wider than elements
__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern double __shared__ sums[];
    unsigned own = threadIdx.x;
    sums[own] = 0;
    for (unsigned k = blockIdx.x * blockDim.x + own; k < n; k += gridDim.x * blockDim.x)
        sums[own] += in[k];
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (own < s)
            sums[own] += sums[own + s];
        __syncthreads();
    }
    if (own == 0)
        out[blockIdx.x] = sums[0];
}
