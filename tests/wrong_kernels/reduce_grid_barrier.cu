/*+++
title      = "Grid barrier by hand"
change     = "All blocks meet at a barrier in global memory, behind which block 0 folds the partials."
scope      = "grid"
grid       = "fixed"
fixed_grid = 256
walk       = "contiguous"
finish     = "last_block"
block      = 512
blocks     = [128, 256, 512, 1024]
+++*/
// Fault: the barrier needs all 256 blocks on the device at once, which an ordinary launch does not
// promise. The author's GPU holds over 500 of them. On one with fewer places, or one shared with
// another kernel, the blocks that are running wait for ever for those that cannot start: 256 blocks of
// 512 need 131072 resident threads. Small inputs have small grids and pass.
__device__ unsigned generation;

__device__ void meet(unsigned *counter)
{
    volatile unsigned *now = &generation;
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned mine = *now;
        __threadfence();
        if (atomicAdd(counter, 1u) == gridDim.x - 1) {
            *counter = 0;
            __threadfence();
            *now = mine + 1;
        } else {
            while (*now == mine)
                ;
        }
        __threadfence();
    }
    __syncthreads();
}

__device__ Acc fold_block(Acc value, Acc *cells)
{
    const unsigned tid = threadIdx.x;
    cells[tid] = value;
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    return cells[0];
}

extern "C" __global__ void reduce_grid_barrier(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    __shared__ Acc cells[BLOCK];
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * share, end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t k = begin + threadIdx.x; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(value, cells);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = value;

    meet(counter);
    if (blockIdx.x > 0)
        return;
    value = Op::identity();
    for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(partials + b));
    value = fold_block(value, cells);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
