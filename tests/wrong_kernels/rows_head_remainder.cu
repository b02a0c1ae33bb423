/*+++
title      = "Rows of floats from an aligned vector on"
change     = "A head loop takes the elements in front of the first address that float4 can be loaded from."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
vector     = 4
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["float32"]
ops        = ["max", "min", "sum", "prod"]
techniques = ["multi_add", "shuffle"]
+++*/
// Fault: the head is as long as the misalignment, and not as what is missing to the next boundary. The two
// are the same for misalignments of 0 and 2 elements; rows that begin 1 or 3 elements past a boundary
// (odd n, more than one row) fault at the first vector.
__device__ size_t head_of(const float *p)
{
    return reinterpret_cast<size_t>(p) / sizeof(float) % 4;
}

extern "C" __global__ void rows_head_remainder(const float *in, float *out, size_t n, size_t rows)
{
    __shared__ float warps[32];
    const unsigned tid = threadIdx.x;
    const float *row = in + (size_t)blockIdx.x * n;
    const size_t head = min(head_of(row), n), vectors = (n - head) / 4;

    float v = tid < head ? row[tid] : Op::identity();
    const float4 *p = reinterpret_cast<const float4 *>(row + head);
#pragma unroll 4
    for (size_t k = tid; k < vectors; k += BLOCK) {
        const float4 x = p[k];
        v = Op::combine(Op::combine(v, x.x), Op::combine(Op::combine(x.y, x.z), x.w));
    }
    const size_t tail = head + 4 * vectors + tid;
    if (tail < n)
        v = Op::combine(v, row[tail]);

    for (unsigned d = 16; d > 0; d /= 2)
        v = Op::combine(v, __shfl_down_sync(0xffffffffu, v, d));
    if (tid % 32 == 0)
        warps[tid / 32] = v;
    __syncthreads();
    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            v = Op::combine(v, warps[w]);
        out[blockIdx.x] = v;
    }
}
