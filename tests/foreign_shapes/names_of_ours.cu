// expected: right  shape: its block, a type and a struct bear names that every kernel of the package is given
constexpr int BLOCK = 256;
using Acc = float;
struct Op { static __device__ float add(float a, float b) { return a + b; } };
__global__ void reduce(const float *in, float *out, int n)
{
    __shared__ Acc s[BLOCK];
    Acc a = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a = Op::add(a, in[i]);
    s[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = Op::add(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
