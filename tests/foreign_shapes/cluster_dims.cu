// expected: right  shape: words about clusters and bounds in front of its name
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) sum(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = i < n ? in[i] : 0.f;
    for (int o = 16; o; o >>= 1) a += __shfl_down_sync(~0u, a, o);
    if (threadIdx.x % 32 == 0) atomicAdd(out, a);
}
