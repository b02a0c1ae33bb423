/*+++
title      = "Four elements a turn while there are four"
change     = "A thread takes four neighbouring elements a turn, and a tail loop takes the rest."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: sum.
// Fault: n - 3 wraps for n below 3, so the unchecked loop reads past the end.
extern "C" __global__ void unsigned_minus_three(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const size_t thread = (size_t)blockIdx.x * BLOCK + threadIdx.x, threads = (size_t)gridDim.x * BLOCK;
    Acc value = Op::identity();
    for (size_t k = 4 * thread; k < n - 3; k += 4 * threads)
        for (size_t j = k; j < k + 4; j++)
            value = Op::combine(value, Op::lift(in[j], j));
    for (size_t k = n / 4 * 4 + thread; k < n; k += threads)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            value = Op::combine(value, of_warp[warp]);
        out[blockIdx.x] = Op::finish(value);
    }
}
