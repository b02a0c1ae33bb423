/*+++
title      = "As many slots as blocks at most"
change     = "Each block owns one of 512 slots on the device; the finish always sums all of them, without bounds."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "contiguous"
finish     = "last_block"
block      = 128
blocks     = [128, 256, 512]
dtypes     = ["float32", "int32"]
ops        = ["sum"]
+++*/
// Fault: a launch of fewer blocks writes the first slots only and still sums all 512, so those that a
// larger launch filled earlier are summed once more. Before that the slots are 0, as the module was
// loaded. The author's tests run from small to large. Shows when a grid shrinks from launch to launch.
__device__ Acc slots[512];

__device__ Acc block_sum(Acc v)
{
    __shared__ Acc lanes[32];
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffffu, v, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        lanes[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (unsigned w = 0; w < BLOCK / 32; w++)
        v += lanes[w];
    return v;
}

extern "C" __global__ void sum_fixed_slots(const In *in, Out *out, size_t n, Acc *, unsigned *counter)
{
    __shared__ bool is_last;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * share, end = min(begin + share, n);
    Acc v = 0;
    for (size_t k = begin + threadIdx.x; k < end; k += BLOCK)
        v += in[k];
    v = block_sum(v);

    if (threadIdx.x == 0) {
        slots[blockIdx.x] = v;
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    v = 0;
#pragma unroll
    for (unsigned s = 0; s < 512; s += BLOCK)
        v += __ldcg(slots + s + threadIdx.x);
    v = block_sum(v);
    if (threadIdx.x == 0)
        *out = v;
}
