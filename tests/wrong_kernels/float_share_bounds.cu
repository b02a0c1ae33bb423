/*+++
title      = "Equal shares by multiplication"
change     = "A block's share runs from b * n / blocks to (b + 1) * n / blocks, so shares differ by one element at most."
scope      = "grid"
grid       = "fixed"
fixed_grid = 100
walk       = "contiguous"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["multi_add"]
+++*/
// Fault: the ends of the shares are computed in float to save a 64-bit division. Beyond 2^24 not every n
// is a float, so up to some thousand last elements are lost; below, about one n in 16 has a product that
// rounds down, so that the last share ends at n - 1. Round sizes are right.
extern "C" __global__ void float_share_bounds(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const float share = (float)n / gridDim.x;
    const size_t begin = (size_t)(blockIdx.x * share);
    const size_t end = min((size_t)((blockIdx.x + 1) * share), n);

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
