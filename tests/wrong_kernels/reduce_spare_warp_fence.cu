/*+++
title  = "A spare warp fences"
change = "The fence is issued by a warp that is idle in the tree, so the first warp need not stall on it."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 256
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: a fence orders what its own thread wrote or had been shown by a barrier before. Thread 32
// fences while thread 0 stores the partial, the barrier comes after both, and thread 0 counts with no
// fence between store and count. Nothing orders the partial for the last block. Shows by chance, on any
// input of two blocks and more; the barrier's few cycles hide it nearly always.
extern "C" __global__ void reduce_spare_warp_fence(const In *in, Out *out, size_t n, Acc *partials,
                                                   unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool last;
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

    auto tree = [&](Acc value) {
        shared[tid] = value;
        __syncthreads();
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();
        }
        return shared[0];
    };

    Acc mine = Op::identity();
    for (size_t k = first + tid; k < min(first + BLOCK * ITEMS, n); k += BLOCK)
        mine = Op::combine(mine, Op::lift(in[k], k));
    mine = tree(mine);

    if (tid == 0)
        partials[blockIdx.x] = mine;
    if (tid == 32)
        __threadfence();
    __syncthreads();
    if (tid == 0)
        last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();

    mine = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        mine = Op::combine(mine, __ldcg(partials + k));
    mine = tree(mine);
    if (tid == 0)
        *out = Op::finish(mine);
}
