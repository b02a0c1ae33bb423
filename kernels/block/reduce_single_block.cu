/*+++
title      = "One block, block-stride loop"
change     = "A single block strides over the whole input and reduces once: no partials, no second launch."
expect     = "Best for a few thousand elements. Beyond that, one SM does the work of the whole GPU."
after      = "reduce_v2_no_bank_conflict"
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 1024
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// v2 spends a block, a tree and a partial on every 256 elements, and further launches on the partials.
// One block that strides over the input has one tree and no partials. The stride is the block size, so
// each iteration reads contiguous elements, coalesced. Loop and tree both change the order of operands,
// so the operator must commute.
extern "C" __global__ void reduce_single_block(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: the result.
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
