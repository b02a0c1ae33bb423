/*+++
title      = "Last fold by half a warp"
change     = "At most 16 warps leave partials, so the last fold needs four shuffles of width 16 instead of five."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 512
blocks     = [32, 64, 128, 256, 384, 512]
techniques = ["shuffle"]
+++*/
// Fault: both halves of the first warp go through the last fold and both have a first lane, so out[1] is
// written as well, behind the one answer. The answer itself is right.
template <int WIDTH>
__device__ Acc fold_lanes(Acc value)
{
#pragma unroll
    for (int d = WIDTH / 2; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d, WIDTH));
    return value;
}

extern "C" __global__ void half_warp_final_fold(const In *in, Out *out, size_t n)
{
    __shared__ Acc partial[16];
    const unsigned tid = threadIdx.x, lane = tid % 32;

    Acc value = Op::identity();
    for (size_t k = tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_lanes<32>(value);
    if (lane == 0)
        partial[tid / 32] = value;
    __syncthreads();

    if (tid < 32) {
        value = fold_lanes<16>(lane < BLOCK / 32 ? partial[lane] : Op::identity());
        if (lane % 16 == 0)
            out[lane / 16] = Op::finish(value);
    }
}
