/*+++
title      = "Rows at odd addresses through a funnel shift"
change     = "Four bytes at any address are cut out of two neighbouring aligned words by a funnel shift and summed at once."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
vector     = 4
finish     = "none"
block      = 128
blocks     = [32, 64, 96, 128, 192, 256, 512]
techniques = ["shuffle", "multi_add"]
dtypes     = ["uint8"]
ops        = ["sum"]
+++*/
// Right: a quad is cut out of words only if both words lie wholly inside the array of all rows; quads at
// the array's own ends, and the last bytes of a row, are read bytewise.
#include <cstdint>

extern "C" __global__ void reduce_funnel_rows(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const unsigned tid = threadIdx.x;
    const uintptr_t array = (uintptr_t)in, array_end = array + rows * n;
    const unsigned char *row = in + blockIdx.x * n;
    const unsigned off = (unsigned)((uintptr_t)row & 3);
    const unsigned *aligned = (const unsigned *)((uintptr_t)row - off);

    Acc value = 0;
    const size_t quads = n / 4;
    for (size_t q = tid; q < quads; q += BLOCK) {
        const uintptr_t at = (uintptr_t)(aligned + q);
        if (at >= array && at + 8 <= array_end) {
            const unsigned four = __funnelshift_r(aligned[q], aligned[q + 1], 8 * off);
            value += Acc(__vsadu4(four, 0u));
        } else {
            for (unsigned byte = 0; byte < 4; byte++)
                value += Acc(row[4 * q + byte]);
        }
    }
    if (tid < n % 4)
        value += Acc(row[4 * quads + tid]);

    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value += __shfl_down_sync(0xffffffffu, value, lanes);
    if (tid % 32 == 0)
        of_warp[tid / 32] = value;
    __syncthreads();
    if (tid == 0) {
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            value += of_warp[warp];
        out[blockIdx.x] = Op::finish(value);
    }
}
