/*+++
title      = "One block a row, shuffles and broadcast"
change     = "Warps fold themselves by shuffles; then every thread adds up the warps' partials, one after another."
expect     = "One block barrier instead of nine. On long rows loading decides, and both versions are equal."
after      = "reduce_rows_tree"
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "multi_add", "shuffle", "broadcast"]
+++*/
// The tree makes a block wait at every step. Here only the warps' partials go through shared
// memory, behind one barrier. All lanes of a warp then read the same cell at the same time, which
// the hardware serves with one broadcast, and no warp has to wait for another. The price: one
// addition after the other, one fewer than there are warps. No stride is tied to a power of two:
// any whole number of warps will do.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_rows_broadcast(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const In *row = in + blockIdx.x * n;

    // Load: a thread with nothing to add brings the identity, so the tree needs no bounds.
    // Signed indices cannot wrap, so the compiler counts the rounds and unrolls them, loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));

    // Tree: inside each warp; then every thread adds up the warps' partials.
    value = fold_warp(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    value = shared[0];
    for (unsigned k = 1; k < BLOCK / 32; k++)
        value = Op::combine(value, shared[k]);

    // Write: one answer a row.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
