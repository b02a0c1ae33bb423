// expected: right  shape: a macro makes a kernel for each type
#define DEFINE_KERNEL(NAME, T) \
__global__ void NAME(const T *in, T *out, int n) \
{ \
    int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i < n) atomicAdd(out, in[i]); \
}
DEFINE_KERNEL(sum_float, float)
DEFINE_KERNEL(sum_int, int)
