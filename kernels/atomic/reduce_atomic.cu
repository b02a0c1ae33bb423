/*+++
title      = "One atomic per element"
change     = "No tree: every thread combines its element with the result in memory."
expect     = "Slowest of all: atomics on one address are serialised."
scope      = "grid"
grid       = "cover"
walk       = "element"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["atomic"]
+++*/
// The shortest correct kernel, and the reference for what the others gain. The output must hold the
// identity before the launch; setting it is part of the measured time. Atomics arrive in a different
// order in each launch, so a floating-point sum is not reproducible.
extern "C" __global__ void reduce_atomic(const In *in, Out *out, size_t n)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    // Load and write: a thread past the end adds nothing.
    if (i < n)
        Op::atomic(out, Op::lift(in[i], i));
}
