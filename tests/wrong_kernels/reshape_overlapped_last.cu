/*+++
title      = "Rows in parts of one length"
change     = "All parts of a row have the same length; the last one is moved forward until it ends with the row."
scope      = "rows"
grid       = "cover"
walk       = "contiguous"
fold       = "warps_then_serial"
items      = 25
finish     = "reshape"
block      = 160
blocks     = [64, 128, 160, 256, 512]
techniques = ["multi_add", "shuffle"]
+++*/
// Fault: a last part that is moved forward overlaps the one before, which an extremum forgives and a sum
// does not: if the parts do not divide the row, elements near its end count twice.
extern "C" __global__ void reshape_overlapped_last(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc warps[BLOCK / 32];
    const size_t parts = gridDim.x / rows, length = (n + parts - 1) / parts;
    const size_t row = blockIdx.x / parts, part = blockIdx.x % parts;
    const size_t begin = min(part * length, n - length);
    const In *p = in + row * n;

    // No part is shorter than another, so the loop has the same number of turns in all blocks.
    Acc value = Op::identity();
    for (size_t j = threadIdx.x; j < length; j += BLOCK)
        value = Op::combine(value, Op::lift(p[begin + j], begin + j));
    for (unsigned d = 16; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();

    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            value = Op::combine(value, warps[w]);
        out[blockIdx.x] = Op::finish(value);
    }
}
