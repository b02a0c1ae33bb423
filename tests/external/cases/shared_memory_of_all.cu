// Each launch asks for shared memory for all elements: more than 12288 do not fit.
#include <vector>
__global__ void sum(const int *x, int *out, int n) {
  extern __shared__ int s[];
  int v = 0;
  for (int i = threadIdx.x; i < n; i += 256) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int k = 128; k > 0; k /= 2) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = s[0];
}
int main() {
  int n = 8192;
  std::vector<int> host(n, 1);
  int *x, *out, result;
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&out, sizeof(int));
  cudaMemcpy(x, host.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  sum<<<1, 256, n * sizeof(int)>>>(x, out, n);
  cudaMemcpy(&result, out, sizeof(int), cudaMemcpyDeviceToHost);
}
