// expected: wrong  shape: every block sets the variable that holds the answer, so that the last one wins
__device__ float total;
__global__ void add(const float *in, int n)
{
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0.0f; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) total = s[0];
}
void launch(const float *in, int n) { add<<<(n + 255) / 256, 256>>>(in, n); }
