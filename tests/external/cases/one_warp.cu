// One warp adds one element per lane, so 32 is the only size.
__global__ void lanes(const float *x, float *out) {
  float v = x[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
  if (threadIdx.x == 0) *out = v;
}
void run(const float *x, float *out, int n) { lanes<<<1, n>>>(x, out); }
