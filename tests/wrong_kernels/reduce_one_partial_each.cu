/*+++
title  = "One partial a thread in the finish"
change = "The last block reads the partials without a loop, a thread each."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 256
blocks = [128, 256, 512, 1024]
+++*/
// Fault: the last block folds at most BLOCK partials and leaves out all behind them. At 256 x 16 a
// million elements make 245 blocks, which fit; the author took that for the general case. Shows for
// n > BLOCK * BLOCK * ITEMS.
__device__ Acc across_warps(Acc v, Acc *warps)
{
    for (unsigned d = 16; d; d >>= 1)
        v = Op::combine(v, __shfl_down_sync(~0u, v, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (unsigned w = 1; w < BLOCK / 32; w++)
        v = Op::combine(v, warps[w]);
    return v;
}

extern "C" __global__ void reduce_one_partial_each(const In *__restrict__ in, Out *__restrict__ out,
                                                   size_t n, Acc *partials, unsigned *counter)
{
    __shared__ Acc warps[BLOCK / 32];
    __shared__ unsigned arrived;
    const unsigned tid = threadIdx.x;

    Acc v = Op::identity();
    size_t k = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;
    for (unsigned item = 0; item < ITEMS && k < n; item++, k += BLOCK)
        v = Op::combine(v, Op::lift(in[k], k));
    v = across_warps(v, warps);

    if (tid == 0) {
        partials[blockIdx.x] = v;
        __threadfence();
        arrived = atomicAdd(counter, 1u) + 1;
        __threadfence();
    }
    __syncthreads();
    if (arrived < gridDim.x)
        return;

    v = tid < gridDim.x ? __ldcg(partials + tid) : Op::identity();
    v = across_warps(v, warps);
    if (tid == 0) {
        *out = Op::finish(v);
        *counter = 0;
    }
}
