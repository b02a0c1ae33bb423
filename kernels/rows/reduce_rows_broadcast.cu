/*+++
title      = "One block per row, shuffles and broadcast"
change     = "Warps reduce by shuffles; then every thread adds up the partials of all warps."
expect     = "One block barrier instead of nine. On long rows loading dominates, and both versions are equal."
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
// A tree makes a block wait at every step. Here only the partials of the warps go through shared
// memory, behind one barrier. The cost is one dependent addition per warp. The block may have any
// whole number of warps, not only a power of two.
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

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));

    // Tree: within each warp; then every thread adds up the partials of all warps. All lanes of a warp read
    // the same address, which shared memory serves as one broadcast.
    value = fold_warp(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    value = shared[0];
    for (unsigned k = 1; k < BLOCK / 32; k++)
        value = Op::combine(value, shared[k]);

    // Write: one result per row.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
