/*+++
title      = "float4 loads, one atomic a block"
change     = "Sixteen bytes a load; the up to three elements behind the last whole vector are taken one by one."
scope      = "grid"
grid       = "fixed"
fixed_grid = 216
walk       = "grid_stride"
items      = 4
vector     = 4
finish     = "atomic"
block      = 256
blocks     = [128, 256, 512]
dtypes     = ["float32"]
ops        = ["sum"]
techniques = ["atomic", "grid_stride"]
+++*/
// Fault: every block takes the tail, for the test asks for the thread in its block and not in the grid.
// With n % 4 other than 0 and more than one block, the last elements count once a block.
extern "C" __global__ void float4_tail_per_block(const float *in, float *out, size_t n)
{
    __shared__ float warp_sums[BLOCK / 32];
    const unsigned tid = threadIdx.x;
    const float4 *vectors = reinterpret_cast<const float4 *>(in);
    const size_t count = n / 4, tail = n % 4;

    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (size_t v = (size_t)blockIdx.x * BLOCK + tid; v < count; v += (size_t)gridDim.x * BLOCK) {
        const float4 x = vectors[v];
        sum.x += x.x;
        sum.y += x.y;
        sum.z += x.z;
        sum.w += x.w;
    }
    float value = (sum.x + sum.y) + (sum.z + sum.w);
    if (tid < tail)
        value += in[4 * count + tid];

    for (int d = 16; d > 0; d >>= 1)
        value += __shfl_down_sync(0xffffffffu, value, d);
    if (tid % 32 == 0)
        warp_sums[tid / 32] = value;
    __syncthreads();
    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            value += warp_sums[w];
        atomicAdd(out, value);
    }
}
