// The array of partial sums has no element for the last block if that is not full.
#include <vector>
__global__ void blocks(const int *x, int *part, int n) {
  __shared__ int s[128];
  int i = blockIdx.x * 128 + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  for (int k = 64; k > 0; k /= 2) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) part[blockIdx.x] = s[0];
}
int main() {
  const int n = 5000, count = n / 128;
  std::vector<int> host(n, 1), sums(count);
  int *x, *part, total = 0;
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&part, count * sizeof(int));
  cudaMemcpy(x, host.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  blocks<<<(n + 127) / 128, 128>>>(x, part, n);
  cudaMemcpy(sums.data(), part, count * sizeof(int), cudaMemcpyDeviceToHost);
  for (int sum : sums) total += sum;
  return total == 0;
}
