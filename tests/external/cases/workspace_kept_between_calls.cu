// Partial results go to memory that the first call allocates.
#include <cuda_runtime.h>
__global__ void blocks(const double *x, double *w, int n) {
  double v = 0;
  for (int i = blockIdx.x; i < n; i += gridDim.x) v += x[i];
  w[blockIdx.x] = v;
}
__global__ void total(const double *w, double *out) {
  double v = 0;
  for (int k = 0; k < 32; k++) v += w[k];
  *out = v;
}
void run(const double *x, double *out, int n) {
  static double *w = nullptr;
  if (w == nullptr) {
    cudaMalloc(&w, 32 * sizeof(double));
    cudaMemset(w, 0, 32 * sizeof(double));
  }
  blocks<<<32, 1>>>(x, w, n);
  total<<<1, 1>>>(w, out);
}
