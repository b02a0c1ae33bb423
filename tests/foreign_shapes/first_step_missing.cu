// expected: wrong  shape: its unrolled steps begin at 512, and its block has 1024 threads
template<unsigned B> __global__ void red(const int* in, int* out, unsigned n) {
  __shared__ int s[B]; unsigned t = threadIdx.x; int v = 0;
  for (unsigned i = blockIdx.x*B+t; i < n; i += B*gridDim.x) v += in[i];
  s[t] = v; __syncthreads();
  if (B >= 512) { if (t < 256) s[t] += s[t+256]; __syncthreads(); }
  if (B >= 256) { if (t < 128) s[t] += s[t+128]; __syncthreads(); }
  if (B >= 128) { if (t < 64) s[t] += s[t+64]; __syncthreads(); }
  if (t < 32) { v = s[t] + s[t+32]; for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o); if (!t) out[blockIdx.x] = v; }
}
int main(){ int*a,*b; red<1024><<<64,1024>>>(a,b,100000); }
