/*+++
title      = "Tile by tile with a carry, order kept"
change     = "Each tile is folded by a tree of growing stride, and thread 0 carries the result to the next tile."
scope      = "block"
grid       = "one"
walk       = "stream_fold"
finish     = "none"
order      = "kept"
block      = 512
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["int32", "uint32"]
ops        = ["affine", "matmul", "sum"]
techniques = ["order_kept", "no_divergence"]
+++*/
// Fault: the carry stands right of the tile's result, though it comes from elements before the tile: the
// author thinks of maps as functions, where the one applied first stands right. Right up to one tile
// (n <= BLOCK) and for sums.
extern "C" __global__ void ordered_carry_right(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    Acc carry = Op::identity();

    for (size_t tile = 0; tile < n; tile += BLOCK) {
        const size_t k = tile + tid;
        cells[tid] = k < n ? Op::lift(in[k], k) : Op::identity();
        __syncthreads();
        for (unsigned s = 1; s < BLOCK; s *= 2) {
            const unsigned left = 2 * s * tid;
            if (left + s < BLOCK)
                cells[left] = Op::combine(cells[left], cells[left + s]);
            __syncthreads();
        }
        if (tid == 0)
            carry = Op::combine(cells[0], carry);
    }
    if (tid == 0)
        *out = Op::finish(carry);
}
