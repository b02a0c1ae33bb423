// expected: right  shape: macros stand for __global__ and __device__
#define KERNEL __global__ void
#define DEV __device__ __forceinline__
DEV float add(float a, float b) { return a + b; }
KERNEL sum(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = i < n ? in[i] : 0.f;
    for (int o = 16; o; o >>= 1) a = add(a, __shfl_down_sync(~0u, a, o));
    if (threadIdx.x % 32 == 0) atomicAdd(out, a);
}
