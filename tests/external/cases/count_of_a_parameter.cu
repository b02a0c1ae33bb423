// The elements that equal a parameter are counted.
__global__ void count(const int *x, int *out, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] == k) atomicAdd(out, 1);
}
void run(const int *x, int *out, int N, int K) { count<<<(N + 255) / 256, 256>>>(x, out, N, K); }
