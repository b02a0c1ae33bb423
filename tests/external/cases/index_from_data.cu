// The elements are indices below 8, so other elements show no fault of the kernel.
#include <vector>
__global__ void bins(const int *x, int *counts, int n) {
  __shared__ int s[8];
  if (threadIdx.x < 8) s[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&s[x[i] - 100000], 1);
  __syncthreads();
  if (threadIdx.x < 8) counts[threadIdx.x] = s[threadIdx.x];
}
int main() {
  const int n = 4096;
  std::vector<int> host(n);
  for (int i = 0; i < n; i++) host[i] = 100000 + i % 8;
  int *x, *counts, result[8];
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&counts, sizeof result);
  cudaMemcpy(x, host.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  bins<<<1, 128>>>(x, counts, n);
  cudaMemcpy(result, counts, sizeof result, cudaMemcpyDeviceToHost);
}
