/*+++
title      = "Integer row mean, summed in 64 bits"
change     = "The sum of a row of 32-bit integers is exact in 64 bits, so the mean is rounded only once."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 256, 512, 1024]
dtypes     = ["int8", "uint8", "int32", "uint32"]
ops        = ["mean"]
+++*/
// Fault: sum and count are both integers when they are divided, and the quotient becomes a double after
// that: whatever stands behind the point is cut off. Right where n divides the sum.
extern "C" __global__ void rows_mean_integer_division(const In *in, double *out, size_t n, size_t rows)
{
    __shared__ long long per_warp[BLOCK / 32];
    const In *row = in + (size_t)blockIdx.x * n;

    long long sum = 0;
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        sum += row[k];
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0)
        per_warp[threadIdx.x / 32] = sum;
    __syncthreads();

    if (threadIdx.x == 0) {
        long long total = 0;
        for (unsigned w = 0; w < BLOCK / 32; w++)
            total += per_warp[w];
        out[blockIdx.x] = total / (long long)COUNT;
    }
}
