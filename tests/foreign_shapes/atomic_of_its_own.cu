// expected: right  shape: an atomic for doubles of its own, by compare and swap
__device__ double addD(double *p, double v)
{
    unsigned long long *a = (unsigned long long *)p, old = *a, as;
    do {
        as = old;
        old = atomicCAS(a, as, __double_as_longlong(v + __longlong_as_double(as)));
    } while (as != old);
    return __longlong_as_double(old);
}
__global__ void dsum(const double* x, double* r, int n) {
  double s = 0; for (int i = blockIdx.x*blockDim.x+threadIdx.x; i < n; i += gridDim.x*blockDim.x) s += x[i];
  for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
  if (threadIdx.x % 32 == 0) addD(r, s);
}
int main(){ double *a,*b; cudaMemset(b,0,8); dsum<<<32,256>>>(a,b,100000); }
