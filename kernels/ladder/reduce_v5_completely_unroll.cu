/*+++
title      = "Completely unrolled"
change     = "The block size is the constant BLOCK, so every step of the tree is laid out flat."
expect     = "No loop counter to halve and compare, no branch back: a few per cent over V4."
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
// V4's loop is counted at run time although the number of steps is known when the kernel is compiled.
// With BLOCK in the bound the compiler unrolls it, and the strides become constants in the addresses.
// The price: one compilation a block size, which a template did in 2007. Harris 2007, kernel 6.
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

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    const size_t k = i + BLOCK;
    const Acc left = i < n ? Op::lift(in[i], i) : Op::identity();
    const Acc right = k < n ? Op::lift(in[k], k) : Op::identity();
    shared[tid] = Op::combine(left, right);
    __syncthreads();

    // Tree: the lower half takes in the upper half, down to 64 partials.
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid < 32)
        fold_last_warp(shared, tid);

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
