// expected: refused  shape: the second stage folds as many partials as one size leaves, which is none of those that are tried
__global__ void parts(const float *in, float *part, int n)
{
    __shared__ float s[256];
    float a = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) a += in[i];
    s[threadIdx.x] = a; __syncthreads();
    for (int k = 128; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) part[blockIdx.x] = s[0];
}
__global__ void rest(const float *part, float *out)
{
    __shared__ float s[256];
    s[threadIdx.x] = part[threadIdx.x] + part[threadIdx.x + 256]; __syncthreads();
    for (int k = 128; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) out[0] = s[0];
}
void run(float *in, float *part, float *out) { int n = 100000, blocks = (n + 255) / 256; parts<<<blocks, 256>>>(in, part, n); rest<<<1, 256>>>(part, out); }
