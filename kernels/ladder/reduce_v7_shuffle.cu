/*+++
title      = "Warp shuffles"
change     = "Lanes exchange partials in registers; shared memory holds one partial per warp."
expect     = "One block barrier instead of three. Once loads dominate, little is left to gain."
after      = "reduce_v6_multi_add"
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "shuffle"]
+++*/
// v6 passes every partial through shared memory at every step. A shuffle moves a register of lane
// t + s directly to lane t and synchronises the lanes of its mask, so no barrier can be forgotten.
// Each warp reduces its own values, then the first warp reduces the partials of all warps. Offsets
// halve and loads are one block apart, so the operator must commute.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_v7_shuffle(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    // Load: elements past the end are skipped; a thread without elements contributes the identity.
    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = i + item * BLOCK;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }

    // Tree: within each warp, then over the partials of the warps.
    value = fold_warp(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    if (warp == 0)
        value = fold_warp(lane < BLOCK / 32 ? shared[lane] : Op::identity());

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
