// expected: wrong  shape: the last block folds no more partials than it has threads
__device__ unsigned int done = 0;
__global__ void one(const float* in, float* part, float* out, int n) {
  __shared__ float s[128]; __shared__ bool last; int t = threadIdx.x; float v = 0;
  for (int i = blockIdx.x*128+t; i < n; i += 128*gridDim.x) v += in[i];
  s[t] = v; __syncthreads();
  for (int k = 64; k; k >>= 1) { if (t < k) s[t] += s[t+k]; __syncthreads(); }
  if (!t) { part[blockIdx.x] = s[0]; __threadfence(); last = atomicInc(&done, gridDim.x-1) == gridDim.x-1; }
  __syncthreads();
  if (last) { __threadfence(); v = t < gridDim.x ? ((volatile float*)part)[t] : 0; s[t] = v; __syncthreads();
    for (int k = 64; k; k >>= 1) { if (t < k) s[t] += s[t+k]; __syncthreads(); }
    if (!t) *out = s[0]; }
}
int main(){ float*a,*p,*o; one<<<256,128>>>(a,p,o,100000); }
