// Its warps give 32 partial sums, all of which are added: right in blocks of 1024 threads only.
__global__ void block_sum(const float *x, float *sums, int n)
{
    __shared__ float s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = i < n ? x[i] : 0.0f;
    for (int k = 16; k > 0; k /= 2) a += __shfl_down_sync(~0u, a, k);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = a;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    a = s[threadIdx.x];
    for (int k = 16; k > 0; k /= 2) a += __shfl_down_sync(~0u, a, k);
    if (threadIdx.x == 0) sums[blockIdx.x] = a;
}
