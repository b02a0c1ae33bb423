/*+++
title      = "Self-priming counter"
change     = "The first block sets the arrival counter to 0, so the kernel does not depend on how it was left."
scope      = "grid"
grid       = "fixed"
fixed_grid = 192
walk       = "contiguous"
finish     = "last_block"
block      = 512
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: block 0 resets the counter while other blocks may already have counted; nothing makes it run
// first. A count wiped out means that no block is last and no answer is written. The author saw block 0
// always start first and a share take microseconds. Shows when block 0 starts late, most with short
// shares. The counter is also left at the grid's size, against what the launch promises the next one.
__device__ Acc tree(Acc *cells, unsigned tid)
{
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
    }
    return cells[tid];
}

extern "C" __global__ void reduce_self_priming_counter(const In *in, Out *out, size_t n, Acc *partials,
                                                       unsigned *counter)
{
    __shared__ Acc cells[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    if (blockIdx.x == 0 && tid == 0) {
        *(volatile unsigned *)counter = 0;
        __threadfence();
    }

    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * share, end = min(begin + share, n);
    cells[tid] = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        cells[tid] = Op::combine(cells[tid], Op::lift(in[k], k));
    Acc value = tree(cells, tid);

    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    cells[tid] = Op::identity();
    for (unsigned b = tid; b < gridDim.x; b += BLOCK)
        cells[tid] = Op::combine(cells[tid], __ldcg(partials + b));
    value = tree(cells, tid);
    if (tid == 0)
        *out = Op::finish(value);
}
