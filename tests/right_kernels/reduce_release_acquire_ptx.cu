/*+++
title      = "Release and acquire in PTX"
change     = "Blocks count in by red.release; the first block polls by ld.acquire and clears the count by st.release when all are in."
scope      = "grid"
grid       = "fixed"
fixed_grid = 28
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 96, 128, 192, 256, 384, 512, 1024]
requires   = ["inline_ptx"]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: the releasing increments form one chain that the acquiring load reads from, so every partial is seen;
// only the first block waits, and none but it touches the count after its last increment.
__device__ __forceinline__ void release_increment(unsigned *count)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(count)) : "memory");
}

__device__ __forceinline__ unsigned load_acquire(const unsigned *count)
{
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(count))
                 : "memory");
    return value;
}

__device__ __forceinline__ void store_release(unsigned *count, unsigned value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(count)), "r"(value)
                 : "memory");
}

__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned lanes = 16; lanes > 0; lanes >>= 1)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, (int)lanes));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

extern "C" __global__ void reduce_release_acquire_ptx(const In *in, Out *out, size_t n, Acc *partials,
                                                      unsigned *counter)
{
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(blockIdx.x * share, n), end = min(begin + share, n);
    Acc value = Op::identity();
    for (size_t k = begin + threadIdx.x; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(value);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = value;
        release_increment(counter);
    }
    if (blockIdx.x > 0)
        return;
    if (threadIdx.x == 0) {
        while (load_acquire(counter) < gridDim.x)
            ;
        store_release(counter, 0);
    }
    __syncthreads();
    value = threadIdx.x < gridDim.x ? partials[threadIdx.x] : Op::identity();
    value = fold_block(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
