/*+++
title      = "Missing barrier between two uses"
change     = "The scratch array is written again while a slower warp still reads it."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 2
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: schedule, hazard.
extern "C" __global__ void missing_barrier_between_uses(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK / 32];
    const unsigned tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const size_t i = (size_t)blockIdx.x * (BLOCK * 2) + tid;

    Acc total = Op::identity();
    for (unsigned half = 0; half < 2; half++) {
        const size_t k = i + half * BLOCK;
        Acc value = k < n ? Op::lift(in[k], k) : Op::identity();
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
        if (lane == 0)
            shared[warp] = value;  // <- hazard
        __syncthreads();
        for (unsigned other = 0; other < BLOCK / 32; other++)
            total = Op::combine(total, shared[other]);
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(total);
}
