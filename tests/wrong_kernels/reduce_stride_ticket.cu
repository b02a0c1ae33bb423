/*+++
title      = "Grid-stride loop with a ticket"
change     = "96 blocks stride over the input; each draws a ticket, and the last ticket folds the partials."
scope      = "grid"
grid       = "fixed"
fixed_grid = 96
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: the only fence stands behind the ticket. It keeps the reads of the last block in place, but
// nothing keeps a block's partial ahead of its own ticket, so the last block may read a partial that is
// still on its way. The author had one fence in mind, "around the atomic". Shows by chance with two
// blocks and more, when the store is slower than the atomic.
extern "C" __global__ void reduce_stride_ticket(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ unsigned ticket;
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));

    // Round 0 folds the elements, round 1 the partials, by the same tree.
    for (int round = 0; round < 2; round++) {
        shared[tid] = value;
        __syncthreads();
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();
        }
        if (round == 1) {
            if (tid == 0) {
                *out = Op::finish(shared[0]);
                *counter = 0;
            }
            return;
        }
        if (tid == 0) {
            partials[blockIdx.x] = shared[0];
            ticket = atomicAdd(counter, 1u);
            __threadfence();
        }
        __syncthreads();
        if (ticket != gridDim.x - 1)
            return;
        value = Op::identity();
        for (unsigned k = tid; k < gridDim.x; k += BLOCK)
            value = Op::combine(value, __ldcg(partials + k));
    }
}
