// expected: right  shape: a third pointer: a lock that the caller has cleared
__global__ void guarded_sum(const int *values, int *total, int *lock, int count)
{
    int mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += values[k];
    mine = __reduce_add_sync(~0u, mine);
    if (threadIdx.x % 32 != 0) return;
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *(volatile int *)total += mine;
    __threadfence();
    atomicExch(lock, 0);
}
