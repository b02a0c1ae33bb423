// expected: right  if: its sums fit int32  shape: what a thread adds up over several turns wraps in a type that holds one turn alone
__global__ void dot(const int *a, const int *b, long long *out, int n)
{
    __shared__ long long s[128];
    long long mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) mine += a[i] * b[i];
    s[threadIdx.x] = (int)mine; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void launch(const int *a, const int *b, long long *out, int n) { dot<<<32, 128>>>(a, b, out, n); }
