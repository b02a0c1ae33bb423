// Expected: WRONG, and that elements are read by two blocks (256..511 by blocks 0 and 1) and the last never.
__global__ void add(unsigned *out, const unsigned *in, unsigned n)
{
    extern __shared__ unsigned s[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    s[t] = i < n ? in[i] : 0;
    s[t + blockDim.x] = i + blockDim.x < n ? in[i + blockDim.x] : 0;
    __syncthreads();
    for (unsigned h = blockDim.x; h > 0; h >>= 1) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

void launch(unsigned *out, const unsigned *in, unsigned n)
{
    add<<<(n + 511) / 512, 256, 512 * sizeof(unsigned)>>>(out, in, n);
}
