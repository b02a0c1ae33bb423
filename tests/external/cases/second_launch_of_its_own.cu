// Expected: right if the number of partials is a power of two (up to 65536 elements), or WRONG: at n = 700 its host launches the second
// stage with 3 threads, and sums[3] was never set.
__global__ void stage1(const float *in, float *sums, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int k = 1; k < blockDim.x; k *= 2) {
        int at = 2 * k * t;
        if (at < blockDim.x) s[at] += s[at + k];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = s[0];
}

__global__ void stage2(float *sums, float *result, int many)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = t < many ? sums[t] : 0.0f;
    __syncthreads();
    for (int k = 1; k < blockDim.x; k *= 2) {
        int at = 2 * k * t;
        if (at < blockDim.x) s[at] += s[at + k];
        __syncthreads();
    }
    if (t == 0) *result = s[0];
}

extern "C" void solve(const float *in, float *result, int n)
{
    float *sums;
    int blocks = (n + 255) / 256;
    cudaMalloc(&sums, blocks * sizeof(float));
    stage1<<<blocks, 256>>>(in, sums, n);
    stage2<<<1, blocks>>>(sums, result, blocks);
}
