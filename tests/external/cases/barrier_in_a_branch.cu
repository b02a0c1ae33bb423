// Half of the threads do not reach the barrier of each step, however it is launched.
__global__ void tree(const float *x, float *out, int n) {
  extern __shared__ float s[];
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k /= 2)
    if (threadIdx.x < k) {
      s[threadIdx.x] += s[threadIdx.x + k];
      __syncthreads();
    }
  if (threadIdx.x == 0) atomicAdd(out, s[0]);
}
