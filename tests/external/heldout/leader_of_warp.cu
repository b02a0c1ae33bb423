#include <cuda_runtime.h>

// The first warp folds the others' sums; lanes without a warp bring 0, and all 32 take part.
__global__ void fold(const double* x, double* out, int n) {
    __shared__ double s[32];
    double v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    v = threadIdx.x < blockDim.x / 32 ? s[threadIdx.x] : 0;
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x == 0) *out = v;
}
void foldAll(const double* x, double* out, int n) { fold<<<1, 512>>>(x, out, n); }
