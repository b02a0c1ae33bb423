/*+++
title      = "Fixed grid, grid-stride loop"
change     = "24 blocks stride over the input together; one block folds the 24 partials in a second launch."
expect     = "24 times the memory traffic in flight; a GPU with more SMs than blocks leaves the rest idle."
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
// One block keeps one SM busy, whatever the GPU has. Here all threads of the grid stride together, by
// the size of the grid, so the number of blocks follows the hardware and not the input; 24 was twice
// the SMs of the GPU it was written for. Partials stay as few as blocks, and the same kernel, launched
// with one block, folds them. In and out are different buffers, so no block overwrites another's input.
extern "C" __global__ void reduce_grid_stride(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    // Load: a thread with nothing to add brings the identity, so the tree needs no bounds.
    // Signed indices cannot wrap, so the compiler counts the rounds and unrolls them, loads first.
    Acc value = Op::identity();
    const long long step = (long long)gridDim.x * BLOCK;
    for (long long k = (long long)blockIdx.x * BLOCK + tid; k < (long long)n; k += step)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

    // Tree: the lower half takes in the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one partial a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
