/*+++
title      = "Ordered shares, last block in series"
change     = "Threads fold runs inside the block's share; the last block's first thread folds 16 partials in series."
scope      = "grid"
grid       = "fixed"
fixed_grid = 16
walk       = "contiguous"
finish     = "last_block"
order      = "kept"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["order_kept", "last_block"]
+++*/
// Fault: in the series the new partial is the left operand, so the shares are multiplied from the last
// to the first. Wrong for operators that do not commute as soon as there are two blocks, n > BLOCK.
__device__ Acc fold_share(const In *in, size_t begin, size_t end)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t run = (end - begin + BLOCK - 1) / BLOCK;
    const size_t first = min(begin + tid * run, end), last = min(first + run, end);
    Acc value = Op::identity();
    for (size_t k = first; k < last; k++)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    __syncthreads();
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        if (tid % (2 * s) == 0)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    return cells[0];
}

extern "C" __global__ void ordered_partials_reversed(const In *in, Out *out, size_t n, Acc *partials,
                                                     unsigned *counter)
{
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(blockIdx.x * share, n);
    const Acc mine = fold_share(in, begin, min(begin + share, n));
    if (threadIdx.x != 0)
        return;
    partials[blockIdx.x] = mine;
    __threadfence();
    if (atomicInc(counter, gridDim.x - 1) != gridDim.x - 1)
        return;
    __threadfence();
    Acc value = Op::identity();
    for (unsigned b = 0; b < gridDim.x; b++)
        value = Op::combine(__ldcg(partials + b), value);
    *out = Op::finish(value);
}
