/*+++
title      = "A collecting block"
change     = "Block 0 waits until all others have counted themselves and folds the partials."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: block 0 polls the counter by a plain read, a race with the others' atomics: neither volatile nor
// atomic, it may be kept in a register or come from a stale L1 line. That the fence in the loop makes
// compiler and L1 read afresh is luck. And block 0 waits for blocks that need not be running: a device
// that runs blocks one after another, or has no room beside it, never ends. Both by design of the
// author, whose GPU runs 128 blocks at once. Shows with two blocks and more.
extern "C" __global__ void reduce_collecting_block(const In *in, Out *out, size_t n, Acc *partials,
                                                   unsigned *counter)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32;

    auto fold = [&](Acc value) {
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
        if (lane == 0)
            warps[tid / 32] = value;
        __syncthreads();
        value = warps[0];
        for (unsigned w = 1; w < BLOCK / 32; w++)
            value = Op::combine(value, warps[w]);
        __syncthreads();
        return value;
    };

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold(value);

    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        atomicAdd(counter, 1u);
    }
    if (blockIdx.x != 0)
        return;

    if (tid == 0) {
        while (*counter < gridDim.x)
            __threadfence();
        *counter = 0;
        __threadfence();
    }
    __syncthreads();
    value = Op::identity();
    for (unsigned b = tid; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(partials + b));
    value = fold(value);
    if (tid == 0)
        *out = Op::finish(value);
}
