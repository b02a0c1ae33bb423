/*+++
title      = "Rows reshaped into more, shorter rows"
change     = "A long row is cut into parts that are reduced like rows; partials form rows again, until one part is left."
expect     = "A few long rows, even a single one, fill the GPU, at the cost of one more launch over short rows."
after      = "reduce_rows_broadcast"
scope      = "rows"
grid       = "cover"
walk       = "contiguous"
fold       = "warps_then_serial"
items      = 64
finish     = "reshape"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "multi_add", "shuffle", "broadcast"]
+++*/
// With one block per row, a long row keeps one SM busy. But a matrix of (rows, n) is also one of
// (rows * parts, n / parts): the same kernel on more, shorter rows. It stores `parts` partials per row,
// which form rows of that length, and is launched on them until each row is one part. ITEMS limits
// the items per thread in one launch and so the length of a part; a last part may be shorter.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_reshape(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t parts = gridDim.x / rows, length = (n + parts - 1) / parts;
    const size_t begin = blockIdx.x % parts * length, end = min(begin + length, n);
    const In *row = in + blockIdx.x / parts * n;

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    for (long long k = begin + tid; k < (long long)end; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));

    // Tree: within each warp; then every thread adds up the partials of all warps.
    value = fold_warp(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    value = shared[0];
    for (unsigned k = 1; k < BLOCK / 32; k++)
        value = Op::combine(value, shared[k]);

    // Write: one partial per part.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
