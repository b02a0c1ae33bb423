/*+++
title      = "Runs of equal length, order kept"
change     = "Each thread folds a run of neighbours, the tree folds neighbouring runs, thread 0 adds what is left."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
order      = "kept"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["order_kept"]
+++*/
// Fault: the elements behind the last whole run are combined in front of the rest and not behind it.
// Wrong for an operator that does not commute if n is no multiple of BLOCK (and above BLOCK).
__device__ Acc fold_run(const In *in, size_t begin, size_t end)
{
    Acc value = Op::identity();
    for (size_t k = begin; k < end; k++)
        value = Op::combine(value, Op::lift(in[k], k));
    return value;
}

extern "C" __global__ void ordered_tail_swapped(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t run = n / BLOCK;

    cells[tid] = fold_run(in, tid * run, (tid + 1) * run);
    __syncthreads();
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        if (tid % (2 * s) == 0)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0) {
        const Acc rest = fold_run(in, run * BLOCK, n);
        *out = Op::finish(Op::combine(rest, cells[0]));
    }
}
