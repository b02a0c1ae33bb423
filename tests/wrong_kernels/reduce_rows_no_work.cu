/*+++
title  = "Rows by block, short cuts for short rows"
change = "Empty rows return at once, rows of a warp's length are folded by one warp, all others by the block."
scope  = "rows"
grid   = "block_per_row"
walk   = "contiguous"
finish = "none"
block  = 128
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: a row without elements still has an answer, the identity, and the short cut leaves it unwritten.
// The author read "nothing to do" into n = 0. Shows for n = 0 alone, and there only if the output did not
// hold the identity by chance.
__device__ Acc fold_warp(Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_rows_no_work(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32;
    if (n == 0 || blockIdx.x >= rows)
        return;
    const In *row = in + blockIdx.x * n;

    Acc value = Op::identity();
    for (size_t k = tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    value = fold_warp(value);
    if (n <= 32) {
        if (tid == 0)
            out[blockIdx.x] = Op::finish(value);
        return;
    }
    if (lane == 0)
        warps[tid / 32] = value;
    __syncthreads();
    if (tid < 32) {
        value = fold_warp(lane < BLOCK / 32 ? warps[lane] : Op::identity());
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
