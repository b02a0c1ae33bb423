/*+++
title      = "Many blocks, order kept"
change     = "Each of 24 blocks keeps the order over a contiguous share; the last block folds the partials in order."
expect     = "24 SMs at work instead of one, each still at two barriers a tile."
after      = "reduce_ordered_block"
scope      = "grid"
grid       = "fixed"
fixed_grid = 24
walk       = "stream_fold"
finish     = "last_block"
order      = "kept"
block      = 1024
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "order_kept", "last_block"]
+++*/
// A grid-stride loop would interleave the blocks' operands. A contiguous share a block does not: partial
// b is the product of share b, and the partials in order of their index are the whole, whichever block
// folds them. The same thread stores, fences and counts, and the counter wraps to 0 by itself.
template <class Load>
__device__ void fold_in_order(Acc *shared, size_t n, Load load)
{
    const unsigned tid = threadIdx.x;

    // Load: the first tile, then each further one behind it, folding neighbours in between.
    shared[tid] = tid < n ? load(tid) : Op::identity();
    for (size_t tile = BLOCK; tile < n; tile += BLOCK) {
        shared[BLOCK + tid] = tile + tid < n ? load(tile + tid) : Op::identity();
        __syncthreads();
        const Acc pair = Op::combine(shared[2 * tid], shared[2 * tid + 1]);
        __syncthreads();
        shared[tid] = pair;
    }
    __syncthreads();

    // Tree: left operand at a multiple of 2s.
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        const unsigned left = 2 * stride * tid;
        if (left < blockDim.x)
            shared[left] = Op::combine(shared[left], shared[left + stride]);
        __syncthreads();
    }
}

extern "C" __global__ void reduce_ordered_last_block(const In *in, Out *out, size_t n, Acc *partials,
                                                     unsigned *counter)
{
    __shared__ Acc shared[2 * BLOCK];
    __shared__ bool is_last;
    const size_t share = (n + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    const size_t count = begin < n ? min(share, n - begin) : 0;

    fold_in_order(shared, count, [=](size_t k) { return Op::lift(in[begin + k], begin + k); });

    // Write: one partial a block; the last block to arrive folds them and writes the answer.
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    fold_in_order(shared, gridDim.x, [=](size_t k) { return __ldcg(partials + k); });
    if (threadIdx.x == 0)
        *out = Op::finish(shared[0]);
}
