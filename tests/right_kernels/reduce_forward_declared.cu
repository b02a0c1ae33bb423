/*+++
title      = "Declared first, bounded at the definition"
change     = "The entry point is declared ahead with C linkage; launch bounds stand before void in its definition, and folding is not inlined."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// Right: a definition has the linkage of the declaration before it, launch bounds may stand anywhere among
// the specifiers, and the fold that is not inlined is called by all threads of the block alike.
extern "C" __global__ void reduce_forward_declared(const In *__restrict__, Out *__restrict__, size_t,
                                                   size_t);

namespace {

__device__ __noinline__ void fold_halves(Acc *cells, unsigned live)
{
    const unsigned tid = threadIdx.x;
    __syncthreads();
    if (live < 2)
        return;
    live /= 2;
    if (tid < live)
        cells[tid] = Op::combine(cells[tid], cells[tid + live]);
    fold_halves(cells, live);
}

__device__ __forceinline__ Acc gather(const In *__restrict__ row, size_t n)
{
    Acc value = Op::identity();
#pragma unroll 4
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    return value;
}

}  // namespace

__launch_bounds__(BLOCK, 2) __global__ void
reduce_forward_declared(const In *__restrict__ in, Out *__restrict__ out, size_t n, size_t rows)
{
    __shared__ Acc cells[BLOCK];
    cells[threadIdx.x] = gather(in + blockIdx.x * n, n);
    fold_halves(cells, BLOCK);
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
