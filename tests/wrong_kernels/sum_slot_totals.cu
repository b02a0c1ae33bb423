/*+++
title  = "Thirty-two slots"
change = "Blocks add to one of 32 slots of the workspace by atomics, so that the finish reads 32 values only."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "last_block"
block  = 256
blocks = [64, 128, 256, 512, 1024]
dtypes = ["float32", "float64", "int32", "uint32"]
ops    = ["sum"]
+++*/
// Fault: the slots are added to as they are found. The last block leaves them at 0 for the next launch,
// but the workspace holds anything before the first one, and the same memory may be lent to another
// kernel in between. The author's allocator returns zeroed memory. Shows wherever the workspace is not
// zero beforehand.
__device__ Acc fold_warp(Acc sum)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    return sum;
}

extern "C" __global__ void sum_slot_totals(const In *in, Out *out, size_t n, Acc *slots, unsigned *counter)
{
    __shared__ Acc warps[BLOCK / 32];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x, used = min(32u, gridDim.x);
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc sum = 0;
    for (unsigned item = 0; item < ITEMS; item++)
        if (i + item * BLOCK < n)
            sum += in[i + item * BLOCK];
    sum = fold_warp(sum);
    if (tid % 32 == 0)
        warps[tid / 32] = sum;
    __syncthreads();

    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            sum += warps[w];
        atomicAdd(slots + blockIdx.x % used, sum);
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last || tid >= 32)
        return;
    sum = 0;
    if (tid < used) {
        sum = __ldcg(slots + tid);
        slots[tid] = 0;
    }
    sum = fold_warp(sum);
    if (tid == 0)
        *out = sum;
}
