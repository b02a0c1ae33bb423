// expected: right  shape: a template parameter and an argument that combine, of two that the file has
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };
struct Max { __device__ float operator()(float a, float b) const { return a > b ? a : b; } };
template <typename Op> __global__ void reduce(const float *in, float *out, int n, Op op, float init)
{
    __shared__ float s[256];
    float a = init;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a = op(a, in[i]);
    s[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = op(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
