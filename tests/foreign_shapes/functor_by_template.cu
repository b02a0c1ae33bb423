// expected: right  shape: a template parameter whose functions combine
template <typename T> struct add_op { static __device__ T apply(T a, T b) { return a + b; } static __device__ T identity() { return T(0); } };
template <typename T, typename OP> __global__ void reduce(const T *in, T *out, int n)
{
    __shared__ T s[256];
    T a = OP::identity();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a = OP::apply(a, in[i]);
    s[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = OP::apply(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
