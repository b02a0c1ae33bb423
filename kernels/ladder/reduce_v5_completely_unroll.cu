/*+++
title      = "Completely unrolled"
change     = "The block size is the compile-time constant BLOCK, so the whole tree is unrolled."
expect     = "No loop counter and no backward branch: a few per cent faster than v4."
after      = "reduce_v4_unroll_last_warp"
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 2
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "first_add", "warp_unroll", "template_unroll"]
+++*/
// The loop of v4 counts at run time although the number of steps is known at compile time. With
// BLOCK as its bound the compiler unrolls it, and strides become constants in the addresses. The
// cost is one compilation per block size, for which Harris used a template. Harris 2007, kernel 6.
__device__ void fold_last_warp(Acc *shared, unsigned tid)
{
    Acc value = shared[tid];
#pragma unroll
    for (unsigned stride = 32; stride > 0; stride /= 2) {
        value = Op::combine(value, shared[tid + stride]);
        __syncwarp();
        shared[tid] = value;
        __syncwarp();
    }
}

extern "C" __global__ void reduce_v5_completely_unroll(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (BLOCK * 2) + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    const size_t k = i + BLOCK;
    const Acc left = i < n ? Op::lift(in[i], i) : Op::identity();
    const Acc right = k < n ? Op::lift(in[k], k) : Op::identity();
    shared[tid] = Op::combine(left, right);
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half, down to 64 partials.
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid < 32)
        fold_last_warp(shared, tid);

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
