/*+++
title      = "Whole tiles without bounds, then the rest"
change     = "Whole tiles need no bounds check; one block takes what is left behind them."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
items      = 4
finish     = "relaunch_one_block"
block      = 256
blocks     = [128, 256, 512, 1024]
techniques = ["grid_stride", "multi_add"]
+++*/
// Fault: whole tiles are counted as (n - 1) / tile, as if the last one were always a part, but the rest
// is n % tile, which is 0 for a whole number of tiles. For n = k * BLOCK * ITEMS the last tile is lost.
extern "C" __global__ void tiles_count_minus_one(const In *in, Out *out, size_t n)
{
    constexpr unsigned TILE = BLOCK * ITEMS;
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t whole = (n - 1) / TILE, rest = n % TILE;

    Acc value = Op::identity();
    for (size_t t = blockIdx.x; t < whole; t += gridDim.x) {
#pragma unroll
        for (unsigned j = 0; j < ITEMS; j++) {
            const size_t k = t * TILE + j * BLOCK + tid;
            value = Op::combine(value, Op::lift(in[k], k));
        }
    }
    if (blockIdx.x == whole % gridDim.x)
        for (unsigned j = tid; j < rest; j += BLOCK)
            value = Op::combine(value, Op::lift(in[whole * TILE + j], whole * TILE + j));
    cells[tid] = value;
    __syncthreads();

#pragma unroll
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
