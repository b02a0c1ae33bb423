/*+++
title      = "Interleaved addressing, modulo test"
change     = "The tree as a textbook draws it: at every step each second partial takes in its neighbour."
expect     = "Slow: the threads that work are spread over all warps, and the modulo is an integer division."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
+++*/
// One block folds BLOCK elements in shared memory and leaves one partial; the same kernel is
// launched on the partials until one is left. At step s every 2s-th thread works. Up to s = 16 that
// leaves every warp 16, 8, 4, 2 and 1 of its lanes, so all warps are split and all go through the
// step. From s = 32 on a warp has one lane or none at work, and half as many are split at each
// step. And all threads, at work or not, form the remainder at every step.
// The loop runs to blockDim.x, not to the constant BLOCK: unrolled, the modulo would vanish and
// with it the lesson. Harris, "Optimizing Parallel Reduction in CUDA" (2007), kernel 1.
extern "C" __global__ void reduce_v0_baseline(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    // Tree: the barrier after each step is outside the branch, since all threads must meet there.
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
