// expected: right  if: its input is positive  shape: a maximum of the bits, of which negative neighbours have the wrong order
__device__ int key(float f) { int i = __float_as_int(f); return i >= 0 ? i : i ^ 0x7ffffffe; }
__device__ float unkey(int i) { return __int_as_float(i >= 0 ? i : i ^ 0x7ffffffe); }
__global__ void fmaxk(const float* in, float* out, int n) {
  __shared__ int best; if (!threadIdx.x) best = key(-INFINITY); __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicMax(&best, key(in[i]));
  __syncthreads(); if (!threadIdx.x) *out = unkey(best);
}
int main(){ float*a,*b; fmaxk<<<1,256>>>(a,b,1000); }
