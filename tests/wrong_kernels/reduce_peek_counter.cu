/*+++
title      = "Look, then count"
change     = "A block looks whether all others have arrived, then counts itself; the last share takes the rest."
scope      = "grid"
grid       = "fixed"
fixed_grid = 24
walk       = "contiguous"
finish     = "last_block"
block      = 1024
blocks     = [128, 256, 512, 1024]
+++*/
// Fault: look and count are two steps. If two blocks look before either counts, none finds itself last,
// nobody writes the answer and the counter stays high for the next launch. The author was wary of using
// an atomic's result. The last block's longer share usually lets it come alone; shows when blocks end
// together, most for inputs that divide evenly.
__device__ Acc fold_all(Acc *cells, Acc value)
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

extern "C" __global__ void reduce_peek_counter(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    __shared__ Acc cells[BLOCK];
    __shared__ bool others_done;
    const unsigned tid = threadIdx.x;
    const size_t share = n / gridDim.x / BLOCK * BLOCK, begin = blockIdx.x * share;
    const size_t end = blockIdx.x == gridDim.x - 1 ? n : begin + share;

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_all(cells, value);

    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        others_done = *(volatile unsigned *)counter == gridDim.x - 1;
        atomicAdd(counter, 1u);
        __threadfence();
    }
    __syncthreads();
    if (!others_done)
        return;

    value = Op::identity();
    for (unsigned b = tid; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(partials + b));
    value = fold_all(cells, value);
    if (tid == 0) {
        *out = Op::finish(value);
        atomicExch(counter, 0u);
    }
}
