/*+++
title  = "Early ticket"
change = "The ticket is drawn just ahead of the partial's store, so that the atomic's latency is overlapped."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 512
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: the block announces its partial before it has stored it; store and fence come after the
// atomic. The block with the last ticket may fold what the last but one has not yet written. Both go
// out within a few cycles of each other, and the author measured a gain and right answers. Shows by
// chance with two blocks and more, likelier where stores queue behind the loads of other warps.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_early_ticket(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    __shared__ Acc sums[32];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS), end = min(begin + BLOCK * ITEMS, n);

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_warp(value);
    if (lane == 0)
        sums[warp] = value;
    __syncthreads();

    if (warp == 0) {
        value = fold_warp(lane < BLOCK / 32 ? sums[lane] : Op::identity());
        if (lane == 0) {
            const unsigned ticket = atomicInc(counter, gridDim.x - 1);
            partials[blockIdx.x] = value;
            __threadfence();
            is_last = ticket == gridDim.x - 1;
        }
    }
    __syncthreads();
    if (!is_last || warp != 0)
        return;

    value = Op::identity();
    for (unsigned b = lane; b < gridDim.x; b += 32)
        value = Op::combine(value, __ldcg(partials + b));
    value = fold_warp(value);
    if (lane == 0)
        *out = Op::finish(value);
}
