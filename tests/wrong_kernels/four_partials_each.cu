/*+++
title      = "Four partial results a thread"
change     = "Each thread of the last block folds up to four partial results, without a loop."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 128
finish     = "last_block"
block      = 256
blocks     = [256]
ops        = ["sum", "max", "min"]
dtypes     = ["float32", "int32", "uint32"]
+++*/
// Fault: more than 1024 blocks leave more partial results than that, from 2^25 + 1 elements on.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    __syncthreads();
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    return cells[0];
}

extern "C" __global__ void four_partials_each(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool last;
    const unsigned tid = threadIdx.x;
    Acc value = Op::identity();
    for (unsigned j = 0; j < ITEMS; j++) {
        const size_t k = ((size_t)blockIdx.x * ITEMS + j) * BLOCK + tid;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    value = fold_block(value);
    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    value = Op::identity();
    for (unsigned j = 0; j < 4; j++)
        if (tid + j * BLOCK < gridDim.x)
            value = Op::combine(value, __ldcg(partials + tid + j * BLOCK));
    value = fold_block(value);
    if (tid == 0)
        *out = Op::finish(value);
}
