/*+++
title      = "Rows in double-word arithmetic"
change     = "Rows of float64 are summed as unevaluated pairs of doubles by branch-free two-sums and rounded once."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 128
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
dtypes     = ["float64"]
ops        = ["sum", "mean"]
+++*/
// Right: a two-sum has no product that could be contracted; where the high word is not finite the low word
// is dropped, so infinities come out as they do of a plain sum.
struct DoubleWord {
    double high, low;
};

__device__ DoubleWord operator+(DoubleWord a, DoubleWord b)
{
    const double sum = __dadd_rn(a.high, b.high);
    const double of_b = __dsub_rn(sum, a.high);
    const double error = __dadd_rn(__dsub_rn(a.high, __dsub_rn(sum, of_b)), __dsub_rn(b.high, of_b));
    const double low = error + (a.low + b.low);
    return {sum, isfinite(sum) && isfinite(low) ? low : 0.0};
}

extern "C" __global__ void reduce_double_word_rows(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ DoubleWord cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const double *row = in + blockIdx.x * n;

    DoubleWord mine = {0.0, 0.0};
    for (size_t k = tid; k < n; k += BLOCK)
        mine = mine + DoubleWord{row[k], 0.0};
    cells[tid] = mine;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
        if (tid < stride)
            cells[tid] = cells[tid] + cells[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0].high + cells[0].low);
}
