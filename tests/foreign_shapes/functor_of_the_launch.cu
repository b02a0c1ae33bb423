// expected: right  shape: of several functors and types those that the file launches with
template <class T> struct Sum { static __device__ T start() { return T(0); } __device__ T operator()(T a, T b) const { return a + b; } };
template <class T> struct Largest { static __device__ T start() { return T(-2147483647 - 1); } __device__ T operator()(T a, T b) const { return a < b ? b : a; } };
template <typename T, typename F, unsigned B> __global__ void fold(const T *in, T *out, int n, F f)
{
    __shared__ T s[B];
    T a = F::start();
    for (int i = blockIdx.x * B + threadIdx.x; i < n; i += gridDim.x * B) a = f(a, in[i]);
    s[threadIdx.x] = a; __syncthreads();
    for (unsigned k = B / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = f(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void run(int *in, int *out, int n) { fold<int, Largest<int>, 128><<<64, 128>>>(in, out, n, Largest<int>()); }
