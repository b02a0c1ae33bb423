/*+++
title      = "Equal shares, product first"
change     = "A block's share runs from b * n / blocks to (b + 1) * n / blocks, which needs no rounding."
scope      = "grid"
grid       = "fixed"
fixed_grid = 1024
walk       = "contiguous"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Fault: the product of block number and n is taken in 32 bits, and overflows from 2^22 elements on.
extern "C" __global__ void shares_in_32_bits(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x, count = n;
    const size_t begin = blockIdx.x * count / gridDim.x;
    const size_t end = (blockIdx.x + 1) * count / gridDim.x;

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
