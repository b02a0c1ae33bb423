// The grid has no block for the rest, and the file's own size has one.
#include <vector>
__global__ void sum(const int *x, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}
int main() {
  const int n = 3000;
  std::vector<int> host(n, 1);
  int *x, *out, result;
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&out, sizeof(int));
  cudaMemcpy(x, host.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemset(out, 0, sizeof(int));
  sum<<<n / 128, 128>>>(x, out, n);
  cudaMemcpy(&result, out, sizeof(int), cudaMemcpyDeviceToHost);
  return result == 0;
}
