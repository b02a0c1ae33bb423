/*+++
title      = "Bytes collected in half2 cells"
change     = "Groups of eight threads add their bytes into one half2 cell each by atomicAdd; the cells go into whole numbers."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "contiguous"
finish     = "atomic"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["atomic", "multi_add", "shared_accumulation"]
dtypes     = ["int8", "uint8"]
ops        = ["sum"]
+++*/
// Right: half holds every whole number up to 2048 exactly, and a component of a cell never takes more than
// four bytes between two clearings, at most 4 * 255; no addition rounds, so their order does not matter.
#include <cuda_fp16.h>

extern "C" __global__ void reduce_half_cells(const In *in, Out *out, size_t n)
{
    constexpr unsigned CELLS = BLOCK / 8;
    __shared__ __half2 cells[CELLS];
    const unsigned tid = threadIdx.x;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(blockIdx.x * share, n), end = min(begin + share, n);
    const __half2 zero = __float2half2_rn(0.0f);

    Acc value = 0;
    for (size_t tile = begin; tile < end; tile += BLOCK) {
        if (tid < CELLS)
            cells[tid] = zero;
        __syncthreads();
        if (tile + tid < end) {
            const __half x = __int2half_rn((int)in[tile + tid]), none = __float2half(0.0f);
            atomicAdd(cells + tid / 8, tid % 2 ? __halves2half2(none, x) : __halves2half2(x, none));
        }
        __syncthreads();
        if (tid < CELLS)
            value += Acc(__half2int_rn(__low2half(cells[tid])) + __half2int_rn(__high2half(cells[tid])));
    }
    if (tid < CELLS && value != 0)
        Op::atomic(out, value);
}
