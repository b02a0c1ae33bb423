/*+++
title      = "One block, order kept"
change     = "Neighbours are folded in pairs while tiles stream in, then by a tree of growing stride."
expect     = "Two barriers a tile and conflicting banks: well below the version that may swap operands."
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
// A thread that strides by the block adds elements out of order, which a matrix product does not
// forgive. Here each tile is put behind what the block holds, and 2 * BLOCK cells become BLOCK by
// folding neighbours, left before right; the oldest part just shrinks into the first cells. Only
// brackets move, never operands. The identity fills the last tile up, at its right end.
extern "C" __global__ void reduce_ordered_block(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[2 * BLOCK];
    const unsigned tid = threadIdx.x;

    // Load: the first tile, then each further one behind it, folding neighbours in between.
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

    // Tree: left operand at a multiple of 2s.
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        const unsigned left = 2 * stride * tid;
        if (left < blockDim.x)
            shared[left] = Op::combine(shared[left], shared[left + stride]);
        __syncthreads();
    }

    // Write: the one answer.
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
