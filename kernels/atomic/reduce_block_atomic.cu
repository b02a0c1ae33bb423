/*+++
title      = "One atomic per block"
change     = "Each block adds its partial to the answer in memory instead of leaving it for another launch."
expect     = "One launch: quickest while blocks are few. Later the arrivals queue up at one address."
after      = "reduce_v2_no_bank_conflict"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "atomic"]
+++*/
// V2 leaves a partial a block and needs a launch for every 256-fold of them; on a small input the
// launches cost more than the additions. Here the memory system takes in the partials as they come,
// one atomic for a whole block instead of one an element. The price: the output must hold the
// identity beforehand, and the order of arrival, so the last bits of a float sum, differ between runs.
extern "C" __global__ void reduce_block_atomic(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    // Tree: the lower half takes in the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one atomic a block.
    if (tid == 0)
        Op::atomic(out, shared[0]);
}
