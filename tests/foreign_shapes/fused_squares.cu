// expected: right  shape: squares by a fused multiplication and addition
#include <cuda_runtime.h>
#define FULL 0xffffffffu
__inline__ __device__ double warpSum(double v) { for (int o = warpSize/2; o > 0; o >>= 1) v += __shfl_down_sync(FULL, v, o); return v; }
__global__ void sumsq(const double* __restrict__ x, double* __restrict__ acc, size_t len) {
  double v = 0;
  for (size_t i = blockIdx.x*(size_t)blockDim.x + threadIdx.x; i < len; i += (size_t)gridDim.x*blockDim.x) v = fma(x[i], x[i], v);
  v = warpSum(v);
  if ((threadIdx.x & (warpSize-1)) == 0) atomicAdd(acc, v);
}
void norm(const double* x, double* acc, size_t len) { cudaMemset(acc, 0, sizeof(double)); sumsq<<<1024, 128>>>(x, acc, len); }
