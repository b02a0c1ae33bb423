/*+++
title      = "Sequential addressing"
change     = "The stride starts at half the block and halves, so neighbouring threads access neighbouring addresses."
expect     = "No bank conflicts. Half of the threads are still idle from the first step on."
after      = "reduce_v1_no_divergence"
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict"]
+++*/
// v1 has bank conflicts. With a stride that halves, thread t adds elements t and t + s: a warp reads
// 32 consecutive elements, and then another 32. The cost is the order of operands (element 0 meets
// element 128 before element 1), so the operator must commute. Harris 2007, kernel 3.
extern "C" __global__ void reduce_v2_no_bank_conflict(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
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
