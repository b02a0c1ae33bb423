/*+++
title      = "Plain tree for any block"
change     = "Stride over the row, then a tree whose stride halves, for all block sizes that CUDA has."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 256, 384, 512, 640, 768, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// Fault: halving an odd stride forgets the last cell. In blocks of 96, 160, 192, 384, 640 and 768 threads,
// whose strides come to 3 or 5, elements are lost; powers of two are right.
extern "C" __global__ void tree_halves_any_block(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const In *const row = in + (size_t)blockIdx.x * n;

    cells[tid] = Op::identity();
    for (size_t k = tid; k < n; k += BLOCK)
        cells[tid] = Op::combine(cells[tid], Op::lift(row[k], k));
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
