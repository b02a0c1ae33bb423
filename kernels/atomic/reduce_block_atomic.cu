/*+++
title      = "One atomic per block"
change     = "Each block adds its partial to the result by an atomic instead of storing it for another launch."
expect     = "One launch: fastest while blocks are few. With many blocks, atomics on one address queue up."
after      = "reduce_v2_no_bank_conflict"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "atomic"]
+++*/
// v2 stores one partial per block and is launched again for every factor of 256. On a small input
// launches cost more than additions. Here each block adds its partial to the output by one atomic.
// The output must hold the identity before the launch, and blocks arrive in a different order in
// each launch, so the last bits of a float sum vary.
extern "C" __global__ void reduce_block_atomic(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one atomic per block.
    if (tid == 0)
        Op::atomic(out, shared[0]);
}
