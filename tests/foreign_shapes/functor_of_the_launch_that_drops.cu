// expected: wrong  shape: the file launches with a functor that drops what is negative, and has one that adds
struct Add { __device__ float operator()(float a, float b) const { return a + b; } };
struct Rectified { __device__ float operator()(float a, float b) const { return a + (b > 0 ? b : 0); } };
template <typename F> __global__ void total(const float *in, float *out, int n)
{
    F f;
    __shared__ float s[128];
    float a = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += 128 * gridDim.x) a = f(a, in[i]);
    s[threadIdx.x] = a; __syncthreads();
    for (int k = 64; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = f(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) atomicAdd(out, s[0]);
}
void run(float *in, float *out, int n) { total<Rectified><<<16, 128>>>(in, out, n); }
