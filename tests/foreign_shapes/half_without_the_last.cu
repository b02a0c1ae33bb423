// expected: wrong
__global__ void fold(const int *in, int *out, unsigned half, unsigned n)
{
    __shared__ int s[256];
    unsigned t = threadIdx.x;
    int own = 0;
    for (unsigned i = blockIdx.x * 256 + t; i < half; i += 256 * gridDim.x) {
        own += in[i];
        if (i + half < n - 1)
            own += in[i + half];
    }
    s[t] = own;
    for (unsigned k = 128; k > 0; k /= 2) {
        __syncthreads();
        if (t < k)
            s[t] += s[t + k];
    }
    if (t == 0)
        atomicAdd(out, s[0]);
}

void sum(const int *in, int *out, unsigned n)
{
    unsigned half = (n + 1) / 2;
    fold<<<64, 256>>>(in, out, half, n);
}
