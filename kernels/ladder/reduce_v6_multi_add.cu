/*+++
title      = "Many adds per thread"
change     = "Each thread adds ITEMS elements, one block apart, before the tree."
expect     = "A quarter of the blocks and trees of v5, and several loads in flight per thread."
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
// A tree costs a block of 256 threads three block barriers and eight steps, however much it has
// loaded. v6 pays that for eight items per thread instead of two, added in registers in the order
// of their indices. In the unrolled loop loads run ahead of additions: nvcc 13.0 issues five of the
// eight loads before the first addition and all before the second (float, sm_90). Harris 2007,
// kernel 7, with a fixed number of items per thread instead of a grid-stride loop.
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

    // Load: elements past the end are skipped; a thread without elements contributes the identity.
    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = i + item * BLOCK;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    shared[tid] = value;
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
