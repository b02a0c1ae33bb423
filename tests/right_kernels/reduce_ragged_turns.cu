/*+++
title      = "Barriers in loops and branches that are uniform"
change     = "A block sum in each turn of a loop with the same number of turns for all threads; idle warps return early."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 256]
+++*/
// Right: every branch and loop with a barrier is taken by all threads that are left, and the last
// shuffles name the lanes that execute them.
__device__ Acc block_sum(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

extern "C" __global__ void reduce_ragged_turns(const In *in, Out *out, size_t n)
{
    __shared__ Acc totals[8];
    Acc total = Op::identity();
    size_t first = (size_t)blockIdx.x * BLOCK;
    while (first < n) {
        const size_t k = first + threadIdx.x;
        const Acc sum = block_sum(k < n ? Op::lift(in[k], k) : Op::identity());
        if (first + BLOCK <= n)
            total = Op::combine(total, sum);
        else {
            __syncthreads();
            total = Op::combine(total, sum);
        }
        first += (size_t)gridDim.x * BLOCK;
    }
    if (threadIdx.x < 8)
        totals[threadIdx.x] = threadIdx.x == 0 ? total : Op::identity();
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    if (threadIdx.x < 8) {
        Acc value = totals[threadIdx.x];
        for (unsigned offset = 4; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffu, value, offset));
        if (threadIdx.x == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
