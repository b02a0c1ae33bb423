/*+++
title      = "Only threads with an element shuffle"
change     = "Threads past the end skip the shuffles, whose mask names all lanes."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "atomic"
block      = 256
blocks     = [256]
ops        = ["sum", "min", "max"]
+++*/
// Rejected by: hazard.
// Fault: in the last warp the mask names lanes that never execute the shuffle, and undefined values are
// added where n is no multiple of 32.
extern "C" __global__ void shuffle_below_n(const In *in, Out *out, size_t n)
{
    const size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (k < n) {
        Acc value = Op::lift(in[k], k);
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));  // <- hazard
        if (threadIdx.x % 32 == 0)
            Op::atomic(out, value);
    }
}
