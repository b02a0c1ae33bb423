/*+++
title      = "Eight lanes fold the warps"
change     = "Only as many lanes as there are warps take part in the last shuffles."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: the last shuffles name all 32 lanes, and only eight execute them. The others never do.
extern "C" __global__ void shuffle_of_eight_lanes(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < BLOCK / 32) {
        value = of_warp[threadIdx.x];
        for (unsigned offset = BLOCK / 64; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));  // <- hazard
        if (threadIdx.x == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
