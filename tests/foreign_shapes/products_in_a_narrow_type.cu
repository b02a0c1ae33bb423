// expected: right  shape: products of integers wrap in their own type before they are added up in a wider one
__global__ void __launch_bounds__(128) dot(const int *a, const int *b, long long *out, int n)
{
    __shared__ long long s[128];
    long long mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) mine += a[i] * b[i];
    s[threadIdx.x] = mine; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
