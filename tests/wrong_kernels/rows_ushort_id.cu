/*+++
title      = "Row and column in one word"
change     = "Row and thread are kept together in one 32-bit register, sixteen bits each."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 64
blocks     = [32, 64, 128, 256]
techniques = ["no_bank_conflict"]
+++*/
// Fault: sixteen bits hold 65536 rows. Block 65536 takes row 0 again, and the answers from there on are
// never written.
extern "C" __global__ void rows_ushort_id(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc cells[BLOCK];
    const ushort2 at = make_ushort2(blockIdx.x, threadIdx.x);
    const In *row = in + at.x * n;

    Acc value = Op::identity();
    for (size_t k = at.y; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    cells[at.y] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (at.y < s)
            cells[at.y] = Op::combine(cells[at.y], cells[at.y + s]);
        __syncthreads();
    }
    if (at.y == 0)
        out[at.x] = Op::finish(cells[0]);
}
