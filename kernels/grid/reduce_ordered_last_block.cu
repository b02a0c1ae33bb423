/*+++
title      = "Many blocks, order kept"
change     = "Each of 24 blocks reduces a contiguous share in order; the last block reduces the partials in order."
expect     = "24 SMs instead of one, each still with two barriers per tile."
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
// A grid-stride loop would interleave the operands of all blocks. With one contiguous share per block,
// partial b is the product of share b, and the partials in the order of blocks are the whole product,
// whichever block reduces them.
template <class Load>
__device__ void fold_in_order(Acc *shared, size_t n, Load load)
{
    const unsigned tid = threadIdx.x;

    // Load: the first tile, then each further tile behind the partials, which combines neighbours.
    shared[tid] = tid < n ? load(tid) : Op::identity();
    for (size_t tile = BLOCK; tile < n; tile += BLOCK) {
        shared[BLOCK + tid] = tile + tid < n ? load(tile + tid) : Op::identity();
        __syncthreads();
        const Acc pair = Op::combine(shared[2 * tid], shared[2 * tid + 1]);
        __syncthreads();
        shared[tid] = pair;
    }
    __syncthreads();

    // Tree: the left operand is at a multiple of 2s.
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

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = shared[0];
        // Release: the fence orders the partial before the count. Acquire: the second fence orders the
        // count before the reads below. atomicInc wraps to 0, ready for the next launch.
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
