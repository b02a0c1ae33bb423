/*+++
title      = "Interleaved addressing, strided index"
change     = "The same additions, done by the first threads of the block instead of every 2s-th one."
expect     = "Down to 32 working threads whole warps work or rest; the modulo is gone; now banks collide."
after      = "reduce_v0_baseline"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence"]
+++*/
// Up to s = 16 V0 keeps all warps awake for a few lanes each. Here thread t takes the t-th pair, so
// the working threads are neighbours and idle warps only wait at the barrier; only in the last five
// steps is one warp split. The price: at step s neighbours touch cells 2s apart, and cells of 4
// bytes that lie a multiple of 32 apart share a bank, which serves one of them at a time. While 32
// lanes work, 2s of them meet in each bank used: 2, 4, 8 in a block of 256, up to 32 in one of
// 1024. Harris 2007, kernel 2.
extern "C" __global__ void reduce_v1_no_divergence(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    // Tree: left operand at a multiple of 2s.
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        const unsigned left = 2 * stride * tid;
        if (left < blockDim.x)
            shared[left] = Op::combine(shared[left], shared[left + stride]);
        __syncthreads();
    }

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
