/*+++
title      = "Row reduction with int arithmetic"
change     = "Row offset and column are int, as in most code for matrices."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [64, 128, 256, 512]
techniques = ["no_divergence", "no_bank_conflict"]
+++*/
// Fault: the offset of a row is the product of two ints. Where rows * n exceeds 2^31 elements, later
// rows get a negative or a wrapped offset and are read from elsewhere. Each single row may be short.
extern "C" __global__ void rows_int_offset(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc smem[BLOCK];
    const int tid = threadIdx.x, row = blockIdx.x, cols = (int)n;
    const int base = row * cols;

    Acc acc = Op::identity();
    for (int col = tid; col < cols; col += BLOCK)
        acc = Op::combine(acc, Op::lift(in[base + col], col));
    smem[tid] = acc;
    __syncthreads();

    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            smem[tid] = Op::combine(smem[tid], smem[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[row] = Op::finish(smem[0]);
}
