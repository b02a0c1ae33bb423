/*+++
title      = "The remainder of a difference"
change     = "The first threads of the last block take what the whole tiles leave."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: sum.
// Fault: the number of elements before the first aligned one is a signed remainder, negative for most
// inputs, so the head is never added and the body begins too late.
extern "C" __global__ void signed_remainder(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const int rest = (256 - (int)n) % 256;
    const size_t whole = n + rest - (rest > 0 ? 256 : 0);
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < whole; k += (size_t)gridDim.x * BLOCK)
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    if (blockIdx.x == 0 && rest > 0 && whole + threadIdx.x < n)
        value = Op::combine(value, Op::lift(in[whole + threadIdx.x], whole + threadIdx.x));
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
