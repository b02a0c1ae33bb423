/*+++
title      = "Row sum by float4"
change     = "Rows are read sixteen bytes at a time, with a short loop behind the last whole vector."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
vector     = 4
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["sum", "max", "min"]
techniques = ["multi_add"]
+++*/
// Fault: a row begins at a multiple of n elements, so for n % 4 other than 0 and more than one row the
// second row is not aligned to 16 bytes and the load faults. The end of a row is handled, its start not.
extern "C" __global__ void rows_float4_unchecked(const float *in, float *out, size_t n, size_t rows)
{
    __shared__ float cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const float *row = in + blockIdx.x * n;
    const float4 *row4 = reinterpret_cast<const float4 *>(row);
    const size_t n4 = n / 4;

    float v = Op::identity();
    for (size_t k = tid; k < n4; k += BLOCK) {
        const float4 x = row4[k];
        v = Op::combine(v, Op::combine(Op::combine(x.x, x.y), Op::combine(x.z, x.w)));
    }
    for (size_t k = n4 * 4 + tid; k < n; k += BLOCK)
        v = Op::combine(v, row[k]);
    cells[tid] = v;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = cells[0];
}
