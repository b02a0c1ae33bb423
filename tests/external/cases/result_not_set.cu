// Nothing sets the sum before the kernel adds to it.
#include <vector>
__global__ void add(const int *x, int *sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, x[i]);
}
int main() {
  const int n = 2000;
  std::vector<int> host(n, 1);
  int *x, *sum, result;
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&sum, sizeof(int));
  cudaMemcpy(x, host.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  add<<<(n + 255) / 256, 256>>>(x, sum, n);
  cudaMemcpy(&result, sum, sizeof(int), cudaMemcpyDeviceToHost);
}
