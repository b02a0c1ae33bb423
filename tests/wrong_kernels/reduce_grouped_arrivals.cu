/*+++
title      = "Arrivals in groups of 32"
change     = "Blocks count within groups of 32, and the last of each group counts for its group."
scope      = "grid"
grid       = "fixed"
fixed_grid = 256
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: the groups' counter expects gridDim.x / 32 groups, rounded down, while a short last group
// counts there as well. A full grid has 8 whole groups and is right. Shows for grids of 33 to 255 blocks
// that are no multiple of 32: one group too many arrives, the answer is written without it, and the
// counter keeps a rest for the next launch.
__device__ unsigned group_arrivals[8];

__device__ Acc tree(Acc *cells, Acc value)
{
    const unsigned tid = threadIdx.x;
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    return cells[0];
}

extern "C" __global__ void reduce_grouped_arrivals(const In *in, Out *out, size_t n, Acc *partials,
                                                   unsigned *counter)
{
    __shared__ Acc cells[BLOCK];
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = tree(cells, value);
    if (threadIdx.x != 0)
        return;

    const unsigned group = blockIdx.x / 32, head = group * 32;
    const unsigned members = min(32u, gridDim.x - head), groups = max(gridDim.x / 32, 1u);
    partials[blockIdx.x] = value;
    __threadfence();
    if (atomicInc(&group_arrivals[group], members - 1) != members - 1)
        return;
    __threadfence();
    value = __ldcg(partials + head);
    for (unsigned m = 1; m < members; m++)
        value = Op::combine(value, __ldcg(partials + head + m));
    partials[head] = value;

    __threadfence();
    if (atomicInc(counter, groups - 1) != groups - 1)
        return;
    __threadfence();
    value = __ldcg(partials);
    for (unsigned g = 1; g < groups; g++)
        value = Op::combine(value, __ldcg(partials + g * 32));
    *out = Op::finish(value);
}
