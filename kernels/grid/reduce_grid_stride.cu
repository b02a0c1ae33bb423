/*+++
title      = "Fixed grid, grid-stride loop"
change     = "24 blocks stride over the input; a second launch of one block reduces the 24 partials."
expect     = "24 times the memory traffic in flight. A GPU with more than 24 SMs leaves the others idle."
after      = "reduce_single_block"
scope      = "grid"
grid       = "fixed"
fixed_grid = 24
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 1024
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// One block keeps one SM busy, however many the GPU has. Here all threads of the grid stride over the
// input, so the number of blocks depends on the hardware and not on n. 24 blocks are two per SM of the
// GPU for which this version was published. The same kernel, launched with one block, reduces the 24
// partials. Input and output are different buffers, so no block overwrites the input of another.
extern "C" __global__ void reduce_grid_stride(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    const long long step = (long long)gridDim.x * BLOCK;
    for (long long k = (long long)blockIdx.x * BLOCK + tid; k < (long long)n; k += step)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one partial per block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
