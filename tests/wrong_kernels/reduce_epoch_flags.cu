/*+++
title      = "Flags with an epoch"
change     = "A block's flag holds the number of the launch in one byte, so that flags need no reset; block 0 collects."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "contiguous"
finish     = "last_block"
block      = 256
blocks     = [128, 256, 512, 1024]
+++*/
// Fault: the epoch has 8 bits. A flag that 255 launches with fewer blocks left alone matches again in
// the 256th, and block 0 folds an old partial; a flag never raised is 0 and matches launch 256 itself.
// The author wanted all flags in one cache line. Shows only after 255 launches of smaller grids: with
// the same grid every flag is renewed each time.
__device__ volatile unsigned char flags[128];
__device__ unsigned launches;

__device__ Acc fold_block(Acc value)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    __syncthreads();
    cells[tid] = value;
    for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
        __syncthreads();
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
    }
    return cells[tid];
}

extern "C" __global__ void reduce_epoch_flags(const In *in, Out *out, size_t n, Acc *partials, unsigned *)
{
    const unsigned tid = threadIdx.x;
    const unsigned char epoch = (unsigned char)(launches + 1);
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * share, end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(value);
    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        flags[blockIdx.x] = epoch;
    }
    if (blockIdx.x != 0)
        return;

    value = Op::identity();
    if (tid < gridDim.x) {
        while (flags[tid] != epoch)
            ;
        __threadfence();
        value = __ldcg(partials + tid);
    }
    value = fold_block(value);
    if (tid == 0) {
        *out = Op::finish(value);
        launches++;
    }
}
