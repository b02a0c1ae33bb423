/*+++
title      = "Sequential addressing"
change     = "The stride starts at half the block and halves, so neighbours touch neighbouring cells."
expect     = "No bank conflicts. Still, half the threads do nothing from the first step on."
after      = "reduce_v1_no_divergence"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict"]
+++*/
// V1 makes the cells of one warp collide in the banks. Counting the stride down instead pairs cell t
// with cell t + s, so a warp reads 32 cells in a row, and then 32 more. The price: operands change
// places (0 meets 128 before 1), so the operator must commute. Harris 2007, kernel 3.
extern "C" __global__ void reduce_v2_no_bank_conflict(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end brings the identity, so the tree needs no bounds.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
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
