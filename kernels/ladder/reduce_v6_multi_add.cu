/*+++
title      = "Many adds per thread"
change     = "Each thread adds ITEMS elements, a block apart, before the tree."
expect     = "A quarter of V5's blocks and trees, and several loads in flight per thread."
after      = "reduce_v5_completely_unroll"
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "warp_unroll", "template_unroll", "multi_add"]
+++*/
// A tree costs a block of 256 three barriers and eight steps, whatever it has loaded. V6 spreads
// that cost over eight elements a thread instead of two, added in registers in the order of their
// indices. Unrolled, loads run ahead of additions: nvcc 13.0 has five of the eight (float, sm_90)
// issued when the first addition waits for its operand, and all before the second. Harris 2007,
// kernel 7, with a fixed number of items instead of a grid-stride loop.
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

extern "C" __global__ void reduce_v6_multi_add(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    // Load: elements past the end are left out; a thread with none brings the identity.
    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = i + item * BLOCK;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    shared[tid] = value;
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
