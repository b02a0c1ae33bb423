/*+++
title      = "Interleaved addressing, strided index"
change     = "The same additions, done by contiguous threads instead of every 2s-th one."
expect     = "Until 32 threads remain, whole warps are active or idle; the modulo is gone. New cost: bank conflicts."
after      = "reduce_v0_baseline"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence"]
+++*/
// In v0 every warp stays active for a few lanes. Here thread t adds pair t, so active threads are
// contiguous: other warps only wait at the barrier, and only the last five steps diverge. The cost
// is bank conflicts. At step s neighbouring threads access elements 2s apart, and 4-byte elements
// that are a multiple of 32 apart share a bank. With 32 active lanes that is a 2-, 4- or 8-way
// conflict in a block of 256, up to 32-way in a block of 1024. Harris 2007, kernel 2.
extern "C" __global__ void reduce_v1_no_divergence(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    // Tree: the left operand is at a multiple of 2s.
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        const unsigned left = 2 * stride * tid;
        if (left < blockDim.x)
            shared[left] = Op::combine(shared[left], shared[left + stride]);
        __syncthreads();
    }

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
