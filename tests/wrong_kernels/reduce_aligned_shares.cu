/*+++
title      = "Shares aligned to four rounds"
change     = "Shares are rounded up to four rounds of the block, so every load but the last share's is full."
scope      = "grid"
grid       = "fixed"
fixed_grid = 24
walk       = "contiguous"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512]
+++*/
// Fault: rounding up leaves the last blocks of a small input with nothing, and those return at once,
// without counting themselves, while the last arrival still waits for the whole grid. Nobody writes the
// answer, and the counter is left wrong. The author thought of idle blocks as free. Shows where n is
// less than one wave of the rounded shares; a million elements give work to all 24.
__device__ Acc fold_warp(Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_aligned_shares(const In *in, Out *out, size_t n, Acc *partials,
                                                 unsigned *counter)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32;
    const size_t rounds = 4 * BLOCK, even = (n + gridDim.x - 1) / gridDim.x;
    const size_t share = (even + rounds - 1) / rounds * rounds, begin = blockIdx.x * share;
    if (begin >= n && blockIdx.x > 0)
        return;
    const size_t end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t tile = begin; tile < end; tile += rounds)
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            const size_t k = tile + r * BLOCK + tid;
            if (k < end)
                value = Op::combine(value, Op::lift(in[k], k));
        }
    value = fold_warp(value);
    if (lane == 0)
        warps[tid / 32] = value;
    __syncthreads();
    if (tid >= 32)
        return;

    // The first warp alone: the block's partial, and the answer if the block is last.
    value = fold_warp(lane < BLOCK / 32 ? warps[lane] : Op::identity());
    unsigned ticket = 0;
    if (lane == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        ticket = atomicInc(counter, gridDim.x - 1);
        __threadfence();
    }
    if (__shfl_sync(0xffffffffu, ticket, 0) != gridDim.x - 1)
        return;
    value = fold_warp(lane < gridDim.x ? __ldcg(partials + lane) : Op::identity());
    if (lane == 0)
        *out = Op::finish(value);
}
