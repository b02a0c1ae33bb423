/*+++
title      = "One atomic per element"
change     = "No tree at all: every thread combines its element with the one answer in memory."
expect     = "Slowest of all: the additions to one address are done one after the other."
scope      = "grid"
grid       = "cover"
walk       = "element"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["atomic"]
+++*/
// The shortest right answer, and the measure of what the others save. The output must hold the
// identity beforehand, which is part of the work and of the measured time. The order of arrival
// differs from run to run, so a floating-point sum is not reproducible.
extern "C" __global__ void reduce_atomic(const In *in, Out *out, size_t n)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    // Load and write: a thread past the end has nothing to add.
    if (i < n)
        Op::atomic(out, Op::lift(in[i], i));
}
