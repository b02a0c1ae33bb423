// A file that was not written for this tool, as the documents name one: a lock, and a scale that keeps
// what is added small.
__global__ void locked(const float *in, float *out, int *lock, float scale, int n)
{
    float mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        mine += in[k] / scale;
    for (int lanes = 16; lanes > 0; lanes /= 2)
        mine += __shfl_down_sync(0xffffffff, mine, lanes);
    if (threadIdx.x % 32 != 0)
        return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *(volatile float *)out += mine * scale;
    __threadfence();
    atomicExch(lock, 0);
}
