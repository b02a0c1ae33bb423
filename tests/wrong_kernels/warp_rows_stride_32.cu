/*+++
title      = "One warp a row, addressed by thread"
change     = "The global thread index is the element index: neighbouring warps read neighbouring rows."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["warp_unroll", "shuffle"]
+++*/
// Fault: rows are taken to lie 32 elements apart, where they lie n apart. Right for n = 32 and for a
// single row; with shorter rows, every row but the first is read from the wrong place, in the end from
// behind the input.
extern "C" __global__ void warp_rows_stride_32(const In *in, Out *out, size_t n, size_t rows)
{
    const size_t thread = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const unsigned lane = threadIdx.x % 32;
    const size_t row = thread / 32;
    if (row >= rows)
        return; // the whole warp

    Acc value = Op::identity();
    if (lane < n)
        value = Op::lift(in[thread], lane);
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (lane == 0)
        out[row] = Op::finish(value);
}
