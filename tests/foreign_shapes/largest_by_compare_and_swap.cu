// expected: right  if: one of its elements is finite and a NaN may be dropped  shape: a plain look before a compare-and-swap, which who has no larger value does without
#include <cfloat>
__device__ void raise(float *place, float value)
{
    int *bits = (int *)place;
    int old = *bits, assumed;
    while (value > __int_as_float(old)) {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(value));
    }
}
__global__ void largest(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    float a = -FLT_MAX;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a = fmaxf(a, in[i]);
    s[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) raise(out, s[0]);
}
