// expected: right  if: a NaN may be dropped  shape: each element goes by a plain look and a compare-and-swap
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
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) raise(out, in[i]);
}
