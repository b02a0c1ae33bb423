// What a kernel may use without asking for it, and as much shared memory as there is.

extern "C" __global__ void prints(const float *in, float *out, size_t n) {
  if (threadIdx.x == 0) printf("block %u\nand its first %g\n", blockIdx.x, in[0]);
  if (threadIdx.x == 0) out[blockIdx.x % n] = in[0];
}

extern "C" __global__ void prints_plainly(const float *in, float *out, size_t n) {
  if (blockIdx.x == 0 && threadIdx.x < 3) printf("hello\n");
}

extern "C" __global__ void all_of_it(float *out) {
  __shared__ float shared[12288];
  for (unsigned i = threadIdx.x; i < 12288; i += blockDim.x) shared[i] = i;
  __syncthreads();
  *out = shared[12287 - threadIdx.x];
}

extern "C" __global__ void too_much(float *out) {
  __shared__ float shared[12289];
  for (unsigned i = threadIdx.x; i < 12289; i += blockDim.x) shared[i] = i;
  __syncthreads();
  *out = shared[12288 - threadIdx.x];
}
