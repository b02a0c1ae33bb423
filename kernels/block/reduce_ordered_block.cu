/*+++
title      = "One block, order kept"
change     = "Neighbouring values are combined in pairs as tiles are loaded, then by a tree of growing stride."
expect     = "Two barriers per tile and bank conflicts: much slower than the version for commutative operators."
after      = "reduce_single_block"
scope      = "block"
grid       = "one"
walk       = "stream_fold"
finish     = "none"
order      = "kept"
block      = 1024
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "order_kept"]
+++*/
// A block-stride loop per thread adds elements out of order, which a matrix product does not allow.
// Here each tile is stored behind the BLOCK partials so far, and the 2 * BLOCK values become BLOCK by
// combining neighbours, left before right. The order of operands is kept, only the grouping changes.
// The identity pads the last tile on the right.
extern "C" __global__ void reduce_ordered_block(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[2 * BLOCK];
    const unsigned tid = threadIdx.x;

    // Load: the first tile, then each further tile behind the partials, which combines neighbours.
    shared[tid] = tid < n ? Op::lift(in[tid], tid) : Op::identity();
    for (size_t tile = BLOCK; tile < n; tile += BLOCK) {
        const size_t k = tile + tid;
        shared[BLOCK + tid] = k < n ? Op::lift(in[k], k) : Op::identity();
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

    // Write: the result.
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
