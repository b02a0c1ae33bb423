/*+++
title      = "Arg-maximum, warps one by one"
change     = "Warps fold themselves by shuffles; thread 0 walks over their winners."
scope      = "block"
grid       = "one"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 512
blocks     = [32, 64, 128, 256, 384, 512, 768, 1024]
ops        = ["argmax"]
techniques = ["shuffle", "multi_add"]
+++*/
// Fault: the walk over the warps' winners takes the later one of two equal values (>= instead of > and
// a look at the index). Wrong if the maximum occurs in the shares of two warps; within a warp the
// operator breaks ties correctly. Random floats hardly ever tie.
extern "C" __global__ void argmax_serial_warps(const In *in, Out *out, size_t n)
{
    __shared__ Acc winners[BLOCK / 32];
    const unsigned tid = threadIdx.x;

    Acc best = Op::identity();
    for (size_t k = tid; k < n; k += BLOCK)
        best = Op::combine(best, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        best = Op::combine(best, __shfl_down_sync(0xffffffffu, best, offset));
    if (tid % 32 == 0)
        winners[tid / 32] = best;
    __syncthreads();

    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++) {
            const Acc other = winners[w];
            if (other.index < 0)
                continue;
            const bool best_nan = best.value != best.value, other_nan = other.value != other.value;
            if (best_nan || other_nan)
                best = Op::combine(best, other);
            else if (other.value >= best.value)
                best = other;
        }
        *out = Op::finish(best);
    }
}
