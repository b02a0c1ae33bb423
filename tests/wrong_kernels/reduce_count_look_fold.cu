/*+++
title      = "Count, fence, look"
change     = "Blocks count without using the atomic's result, then look whether the count is full; partials fold in place."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "contiguous"
finish     = "last_block"
block      = 512
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: a block that has counted may look only after further blocks have, so two of them can both see
// the count full. Both then fold the same partials in place, one reading what the other has summed
// already. The author was sure that only one arrives at the full count. Block 0 has a longer share and
// usually comes long after the others; shows when shares are equal and blocks end together.
extern "C" __global__ void reduce_count_look_fold(const In *in, Out *out, size_t n, Acc *partials,
                                                  unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ unsigned count;
    const unsigned tid = threadIdx.x;
    const size_t share = n / gridDim.x / BLOCK * BLOCK, extra = n - share * gridDim.x;
    const size_t begin = blockIdx.x == 0 ? 0 : extra + blockIdx.x * share;
    const size_t end = extra + (blockIdx.x + 1) * share;

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        atomicAdd(counter, 1u);
        __threadfence();
        count = *(volatile unsigned *)counter;
        __threadfence();
    }
    __syncthreads();
    if (count != gridDim.x)
        return;

    // In place: as few cells as blocks, at most 64, so one thread a pair will do.
    for (unsigned left = gridDim.x; left > 1;) {
        const unsigned half = (left + 1) / 2;
        if (tid + half < left)
            partials[tid] = Op::combine(__ldcg(partials + tid), __ldcg(partials + tid + half));
        __syncthreads();
        left = half;
    }
    if (tid == 0) {
        *out = Op::finish(__ldcg(partials));
        *counter = 0;
    }
}
