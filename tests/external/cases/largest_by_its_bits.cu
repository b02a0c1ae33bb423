// The maximum of floats by a loop of compare-and-swap on their bits.
__device__ void atomic_max(float *place, float value)
{
    int *bits = (int *)place, seen = *bits, assumed;
    do {
        assumed = seen;
        if (__int_as_float(assumed) >= value) break;
        seen = atomicCAS(bits, assumed, __float_as_int(value));
    } while (seen != assumed);
}
__global__ void largest(const float *x, float *best, int n)
{
    float a = -INFINITY;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        a = fmaxf(a, x[i]);
    for (int k = 16; k > 0; k /= 2) a = fmaxf(a, __shfl_xor_sync(~0u, a, k));
    if (threadIdx.x % 32 == 0) atomic_max(best, a);
}
