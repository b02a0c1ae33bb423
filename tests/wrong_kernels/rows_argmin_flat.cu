/*+++
title      = "Row arg-minimum over the flat array"
change     = "Rows are walked by their position in the whole array, which spares a second pointer."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [64, 128, 256, 512]
ops        = ["argmin", "argmax"]
+++*/
// Fault: elements are lifted with their position in the whole array and not in their row, so row r
// answers r * n too much. Right for row 0, so for a single row of any length.
extern "C" __global__ void rows_argmin_flat(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * n, end = begin + n;

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 32; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid < 32) {
        value = Op::combine(cells[tid], cells[tid + 32]);
#pragma unroll
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
        if (tid == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
