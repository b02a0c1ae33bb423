// expected: right  if: it has at most 65536 elements  shape: the last block has a thread for each partial
__global__ void block_sums(const int *in, int *partials, int n)
{
    extern __shared__ int s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0;
    for (int offset = blockDim.x / 2; offset > 0; offset /= 2) {
        __syncthreads();
        if (threadIdx.x < offset)
            s[threadIdx.x] += s[threadIdx.x + offset];
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x] = s[0];
}

__global__ void total_of(const int *partials, int *total, int count)
{
    extern __shared__ int s[];
    s[threadIdx.x] = threadIdx.x < count ? partials[threadIdx.x] : 0;
    for (int offset = blockDim.x / 2; offset > 0; offset /= 2) {
        __syncthreads();
        if (threadIdx.x < offset)
            s[threadIdx.x] += s[threadIdx.x + offset];
    }
    if (threadIdx.x == 0)
        *total = s[0];
}

int main()
{
    const int blocks = 256;
    block_sums<<<blocks, 256, 256 * sizeof(int)>>>(in, partials, blocks * 256);
    total_of<<<1, blocks, blocks * sizeof(int)>>>(partials, total, blocks);
}
