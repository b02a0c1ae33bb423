/*+++
title      = "First add during load"
change     = "Each thread loads two elements, one block apart, and adds them before the tree."
expect     = "Half as many blocks, and no thread is idle in the first step."
after      = "reduce_v2_no_bank_conflict"
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 2
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "first_add"]
+++*/
// In v2 half of the threads of a block load one element and then only wait. Here a block reads
// 2 * blockDim.x elements: all threads do the first step of the tree in registers, during the load.
// Harris 2007, kernel 4.
extern "C" __global__ void reduce_v3_add_during_load(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (blockDim.x * 2) + tid;

    // Load: a thread past the end contributes the identity, so the tree needs no bounds check.
    // The two loads are one block apart, so that each is coalesced.
    const size_t k = i + blockDim.x;
    const Acc left = i < n ? Op::lift(in[i], i) : Op::identity();
    const Acc right = k < n ? Op::lift(in[k], k) : Op::identity();
    shared[tid] = Op::combine(left, right);
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
