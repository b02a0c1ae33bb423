// The operator is a device function that the host reads from a variable.
typedef int (*Op)(int, int);
__device__ int least(int a, int b) { return a < b ? a : b; }
__device__ Op chosen = least;
__global__ void fold(const int *x, int *out, int n, Op op) {
  int v = x[0];
  for (int i = 1; i < n; i++) v = op(v, x[i]);
  *out = v;
}
int main() {
  int host[100] = {}, result, *x, *out;
  Op op;
  cudaMemcpyFromSymbol(&op, chosen, sizeof(Op));
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&out, sizeof(int));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  fold<<<1, 1>>>(x, out, 100, op);
  cudaMemcpy(&result, out, sizeof(int), cudaMemcpyDeviceToHost);
}
