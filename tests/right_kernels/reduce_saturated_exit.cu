/*+++
title      = "Done when the highest value is found"
change     = "After each tile the block votes by a barrier whether a thread holds the type's highest value, and stops reading if so."
scope      = "grid"
grid       = "fixed"
fixed_grid = 52
walk       = "contiguous"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
dtypes     = ["int8", "uint8", "int32", "uint32", "int64", "uint64"]
ops        = ["max"]
+++*/
// Right: nothing exceeds the highest whole number of the accumulator, so the rest of the share cannot change
// the answer; the vote is the same for all threads, so all leave the loop in the same round.
extern "C" __global__ void reduce_saturated_exit(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(blockIdx.x * share, n), end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t tile = begin; tile < end; tile += 8 * BLOCK) {
#pragma unroll
        for (unsigned item = 0; item < 8; item++) {
            const size_t k = tile + item * BLOCK + tid;
            if (k < end)
                value = Op::combine(value, Op::lift(in[k], k));
        }
        if (__syncthreads_or(value == HIGHEST))
            break;
    }

    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
