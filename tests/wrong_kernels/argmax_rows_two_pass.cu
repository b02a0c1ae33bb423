/*+++
title  = "Arg-max of rows in two passes"
change = "A block finds its row's maximum, then the first index that holds it, by the same fold."
scope  = "rows"
grid   = "block_per_row"
walk   = "contiguous"
fold   = "warps_then_serial"
finish = "none"
block  = 128
blocks = [32, 64, 96, 128, 192, 256, 512, 1024]
dtypes = ["int32"]
ops    = ["argmax"]
+++*/
// Fault: both folds go through the same cells and no barrier parts them, so a warp that is ahead stores
// its index where a slower one still reads a maximum; that warp then looks for a wrong value. The second
// pass over a long row takes long enough to hide it, and a block of one warp is safe. Shows by chance,
// most for short rows, where whole warps have nothing to look at in the second pass.
template <class Pick>
__device__ long long fold_block(long long value, long long *cells, Pick pick)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int offset = 16; offset > 0; offset /= 2)
        value = pick(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (lane == 0)
        cells[warp] = value;
    __syncthreads();
    value = cells[0];
    for (unsigned w = 1; w < BLOCK / 32; w++)
        value = pick(value, cells[w]);
    return value;
}

extern "C" __global__ void argmax_rows_two_pass(const int *in, long long *out, size_t n, size_t rows)
{
    __shared__ long long cells[BLOCK / 32];
    const int *row = in + blockIdx.x * n;

    long long best = -0x7fffffffffffffffLL - 1;
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        best = max(best, (long long)row[k]);
    best = fold_block(best, cells, [](long long a, long long b) { return a > b ? a : b; });

    long long first = 0x7fffffffffffffffLL;
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        if (row[k] == best) {
            first = (long long)k;
            break;
        }
    first = fold_block(first, cells, [](long long a, long long b) { return a < b ? a : b; });

    if (threadIdx.x == 0)
        out[blockIdx.x] = n > 0 ? first : -1;
}
