/*+++
title      = "Atomic on poison"
change     = "Nobody sets the output to the identity."
scope      = "grid"
grid       = "cover"
walk       = "element"
finish     = "none"
block      = 256
blocks     = [256]
+++*/
// Rejected by: sum.
extern "C" __global__ void atomic_on_poison(const In *in, Out *out, size_t n)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        Op::atomic(out, Op::lift(in[i], i));
}
