/*+++
title  = "Pairs staged in shared memory"
change = "Each block streams 64 items a thread through shared memory and folds neighbours as pairs."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 64
finish = "atomic"
block  = 64
blocks = [64]
ops    = ["sum", "min", "max"]
+++*/
// Fault: the loop holds two barriers and each thread leaves it by its own index, so where the elements
// are no multiple of the block some threads make one round less and meet the others' barriers from
// further down: undefined, and the upper threads, which lead the tree, read sums that the lower ones have
// not stored yet. The author tested round sizes. Right for every n that is a multiple of BLOCK, wrong for
// all others.
extern "C" __global__ void reduce_staged_pairs(const In *in, Out *out, size_t n)
{
    __shared__ Acc stage[BLOCK], sums[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS);
    const size_t end = min(begin + BLOCK * ITEMS, n);

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK) {
        stage[tid] = Op::lift(in[k], k);
        __syncthreads();
        const size_t left = k + tid;  // the element in cell 2 * tid
        if (tid < BLOCK / 2 && left < end) {
            Acc pair = stage[2 * tid];
            if (left + 1 < end)
                pair = Op::combine(pair, stage[2 * tid + 1]);
            value = Op::combine(value, pair);
        }
        __syncthreads();
    }

    // The upper half had no pairs to fold, so it leads the tree.
    sums[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid >= BLOCK - stride)
            sums[tid] = Op::combine(sums[tid], sums[tid - stride]);
        __syncthreads();
    }
    if (tid == BLOCK - 1)
        Op::atomic(out, sums[tid]);
}
