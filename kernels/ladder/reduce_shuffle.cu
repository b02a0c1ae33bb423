/*+++
title      = "Warp shuffles, one element a thread"
change     = "Every warp folds itself by shuffles; shared memory only carries one partial a warp."
expect     = "One block barrier in all. Still one element a thread, so blocks and launches are as many as before."
after      = "reduce_warp_tail"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "shuffle"]
+++*/
// The tree in shared memory writes and reads every partial at every step, and only its last warp is
// free of barriers. A shuffle hands a register of lane t + s to lane t directly, so each warp folds
// its 32 elements alone and the first warp then folds what the others left. No stride is tied to a
// power of two: any whole number of warps will do.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_shuffle(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    Acc value = i < n ? Op::lift(in[i], i) : Op::identity();

    // Tree: inside each warp, then across the warps' partials.
    value = fold_warp(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    if (warp == 0)
        value = fold_warp(lane < BLOCK / 32 ? shared[lane] : Op::identity());

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
