/*+++
title      = "A block sum each turn"
change     = "Each turn of the grid-stride loop ends with a sum over the block."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: threads whose last turn is past the end leave the loop early, and meet the others, who are in
// the barriers of the last turn, with those of the final sum.
__device__ Acc block_sum(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();  // <- hazard
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

extern "C" __global__ void barrier_in_ragged_loop(const In *in, Out *out, size_t n)
{
    Acc total = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK) {
        const Acc sum = block_sum(Op::lift(in[k], k));
        if (threadIdx.x == 0)
            total = Op::combine(total, sum);
    }
    total = block_sum(total);
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(total);
}
