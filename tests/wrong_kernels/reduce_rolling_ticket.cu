/*+++
title  = "Rolling tickets"
change = "Tickets are drawn from a counter that is never reset; every gridDim.x-th ticket is a last one."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: the counter rolls on from launch to launch, so "ticket % gridDim.x == gridDim.x - 1" names the
// last block only while all launches have the same grid. The author's benchmark repeats one size. Shows
// in the first launch whose earlier tickets are no multiple of its grid: some block in the middle thinks
// it is last and folds partials not yet written. Also at 2^32 tickets, unless the grid divides that.
__device__ unsigned next_ticket = 0;

__device__ Acc warp_fold(Acc v)
{
#pragma unroll
    for (unsigned d = 16; d > 0; d >>= 1)
        v = Op::combine(v, __shfl_down_sync(0xffffffffu, v, d));
    return v;
}

extern "C" __global__ void reduce_rolling_ticket(const In *in, Out *out, size_t n, Acc *partials, unsigned *)
{
    __shared__ Acc per_warp[32];
    __shared__ unsigned ticket;
    const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const size_t tile = (size_t)blockIdx.x * (BLOCK * ITEMS);

    Acc v = Op::identity();
    for (unsigned j = threadIdx.x; j < BLOCK * ITEMS; j += BLOCK)
        if (tile + j < n)
            v = Op::combine(v, Op::lift(in[tile + j], tile + j));
    v = warp_fold(v);
    if (lane == 0)
        per_warp[warp] = v;
    __syncthreads();

    if (warp == 0) {
        v = warp_fold(lane < BLOCK / 32 ? per_warp[lane] : Op::identity());
        if (lane == 0) {
            partials[blockIdx.x] = v;
            __threadfence();
            ticket = atomicAdd(&next_ticket, 1u);
        }
    }
    __syncthreads();

    if (ticket % gridDim.x == gridDim.x - 1 && warp == 0) {
        __threadfence();
        v = Op::identity();
        for (unsigned b = lane; b < gridDim.x; b += 32)
            v = Op::combine(v, __ldcg(partials + b));
        v = warp_fold(v);
        if (lane == 0)
            *out = Op::finish(v);
    }
}
