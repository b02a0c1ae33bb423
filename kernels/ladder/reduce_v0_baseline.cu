/*+++
title      = "Interleaved addressing, modulo test"
change     = "A tree in shared memory: at each step every second remaining thread adds its neighbour's partial."
expect     = "Slow: active threads are spread over all warps, and the modulo is an integer division."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
+++*/
// Each block reduces BLOCK elements in shared memory and stores one partial. The kernel is launched
// again on the partials until one is left. At step s every 2s-th thread adds. Up to s = 16 every
// warp has 16, 8, 4, 2 or 1 active lanes, so all warps diverge and all execute every step. All
// threads, active or not, compute the modulo. Harris, "Optimizing Parallel Reduction in CUDA"
// (2007), kernel 1.
extern "C" __global__ void reduce_v0_baseline(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    // Tree: all threads must reach the barrier, so it is outside the branch. The bound is blockDim.x
    // and not BLOCK: unrolled, the modulo would disappear, and the lesson with it.
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
