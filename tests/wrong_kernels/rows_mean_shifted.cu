/*+++
title      = "Row mean about the first element"
change     = "Differences to the row's first element are summed, so data far from 0 loses fewer bits."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 128
blocks     = [32, 64, 128, 256, 512]
dtypes     = ["float32", "float64"]
ops        = ["mean"]
+++*/
// Fault: if the row's first element is infinite, its own difference is infinity minus infinity, so the
// mean is NaN where it is infinite. And a first element far larger than all others costs the others
// their low bits. Rows of values of one size, none infinite, are right.
extern "C" __global__ void rows_mean_shifted(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc warp_sum[BLOCK / 32];
    const unsigned tid = threadIdx.x;
    const In *row = in + (size_t)blockIdx.x * n;
    const Acc shift = row[0];

    Acc sum = 0;
    for (size_t k = tid; k < n; k += BLOCK)
        sum += row[k] - shift;
#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (tid % 32 == 0)
        warp_sum[tid / 32] = sum;
    __syncthreads();

    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            sum += warp_sum[w];
        out[blockIdx.x] = shift + sum / Acc(n);
    }
}
