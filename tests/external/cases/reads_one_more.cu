// The element behind the last is read.
#include <vector>
__global__ void squares(const float *x, float *out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i <= n; i += gridDim.x * blockDim.x)
    atomicAdd(out, x[i] * x[i]);
}
int main() {
  const int n = 2048;
  std::vector<float> host(n, 1.0f);
  float *x, *out, result;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&out, sizeof(float));
  cudaMemset(out, 0, sizeof(float));
  cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  squares<<<2, 128>>>(x, out, n);
  cudaMemcpy(&result, out, sizeof(float), cudaMemcpyDeviceToHost);
  return result == 0;
}
