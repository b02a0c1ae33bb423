// The sum of all blocks is set to 0 in the first call only.
#include <cuda_runtime.h>
__global__ void add(const double *x, double *w, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(w, x[i]);
}
__global__ void copy(const double *w, double *out) { *out = *w; }
void run(const double *x, double *out, int n) {
  static double *w = nullptr;
  if (w == nullptr) {
    cudaMalloc(&w, sizeof(double));
    cudaMemset(w, 0, sizeof(double));
  }
  add<<<(n + 127) / 128, 128>>>(x, w, n);
  copy<<<1, 1>>>(w, out);
}
