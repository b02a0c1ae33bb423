// A file that was not written for this tool, as the documents name one: a template with a block size.
template <class T, unsigned B>
__global__ void reduce6(const T *in, T *out, unsigned n)
{
    __shared__ T cells[B];
    T mine = 0;
    for (unsigned k = blockIdx.x * B + threadIdx.x; k < n; k += B * gridDim.x)
        mine += in[k];
    cells[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = B / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cells[threadIdx.x] += cells[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = cells[0];
}
