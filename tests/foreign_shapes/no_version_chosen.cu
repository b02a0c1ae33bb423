// expected: refused  shape: versions behind conditions, of which none is chosen
#define FIRST 0
#define SECOND 0
#if FIRST
__global__ void total(const int *in, int *out, int n) { if (threadIdx.x < n) atomicAdd(out, in[threadIdx.x]); }
#elif SECOND
__global__ void total(const int *in, int *out, int n) { for (int k = 0; k < n; ++k) *out += in[k]; }
#endif
