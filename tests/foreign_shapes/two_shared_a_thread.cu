// expected: right  shape: a thread has two places in memory of a size that nobody can read
__global__ void reduce(const float *in, float *out, int n)
{
    extern __shared__ float pairs[];
    unsigned own = threadIdx.x, first = 2 * own, k = (blockIdx.x * blockDim.x + own) * 2;
    pairs[first] = k < n ? in[k] : 0;
    pairs[first + 1] = k + 1 < n ? in[k + 1] : 0;
    __syncthreads();
    for (unsigned s = blockDim.x; s > 0; s /= 2) {
        if (own < s)
            pairs[own] += pairs[own + s];
        __syncthreads();
    }
    if (own == 0)
        out[blockIdx.x] = pairs[0];
}

void launch(const float *in, float *out, int n, int width)
{
    reduce<<<(n + width - 1) / width, width / 2, width * sizeof(float)>>>(in, out, n);
}
