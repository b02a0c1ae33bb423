/*+++
title      = "One block, thread-strided"
change     = "A single block strides over the whole input and folds once: no partials, no further launch."
expect     = "Best for some thousand elements. Beyond, one SM must read what all could."
after      = "reduce_v2_no_bank_conflict"
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 1024
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// V2 spends a block, a tree and a partial on every 256 elements, and further launches on the partials.
// One block that strides over the input needs none of that, and the tree is paid once. The stride is
// the block, so each step of the loop reads one contiguous, coalesced piece. The price: operands
// change places twice, in the loop and in the tree, so the operator must commute.
extern "C" __global__ void reduce_single_block(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    // Load: a thread with nothing to add brings the identity, so the tree needs no bounds.
    // Signed indices cannot wrap, so the compiler counts the rounds and unrolls them, loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

    // Tree: the lower half takes in the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: the one answer.
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
