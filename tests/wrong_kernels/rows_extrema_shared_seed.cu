/*+++
title      = "Row extrema seeded by an element"
change     = "No identity at all: every thread starts from an element, which an extremum forgives."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
ops        = ["min", "max", "argmin", "argmax"]
+++*/
// Fault: the seed is the first element of the whole input and not of the block's row, which was right
// while the kernel took one array. With two rows or more, row 0's first element takes part in every
// row, and wins wherever it is more extreme than the row's own elements.
extern "C" __global__ void rows_extrema_shared_seed(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc cell[BLOCK];
    const unsigned tid = threadIdx.x;
    const In *row = in + (size_t)blockIdx.x * n;

    // An extremum taken twice is the same extremum, so all may begin with the same element.
    Acc value = Op::lift(in[0], 0);
    for (size_t k = tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    cell[tid] = value;
    __syncthreads();

#pragma unroll
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cell[tid] = Op::combine(cell[tid], cell[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cell[0]);
}
