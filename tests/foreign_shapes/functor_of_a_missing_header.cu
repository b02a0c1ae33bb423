// expected: right  shape: what lifts and what combines are types of a header that is not there
#include "detail/ops.h"
#if CUDART_VERSION < 9000
#error shuffles have no mask
#endif
template <int NT, typename Lift, typename Fold, typename T>
__global__ void reduce(Lift lift, Fold fold, const T *in, T *out, int n, T first)
{
    __shared__ T s[NT];
    T a = first;
    for (int i = blockIdx.x * NT + threadIdx.x; i < n; i += gridDim.x * NT) a = fold(a, lift(in[i]));
    s[threadIdx.x] = a; __syncthreads();
    for (int k = NT / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] = fold(s[threadIdx.x], s[threadIdx.x + k]); __syncthreads(); }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void launch(const float *in, float *out, int n)
{
    reduce<128><<<64, 128>>>(ops::identity<float>(), ops::add<float>(), in, out, n, 0.0f);
}
