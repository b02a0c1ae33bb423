// Beyond 65536 elements the index wraps.
__global__ void sum(const int *x, int *out, int n) {
  int own = 0;
  for (int start = 0; start < n; start += blockDim.x) {
    unsigned short i = start + threadIdx.x;
    if (start + threadIdx.x < n) own += x[i];
  }
  __shared__ int s[512];
  s[threadIdx.x] = own;
  __syncthreads();
  for (int k = 256; k > 0; k /= 2) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = s[0];
}
void run(const int *x, int *out, int n) { sum<<<1, 512>>>(x, out, n); }
