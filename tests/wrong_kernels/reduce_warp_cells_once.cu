/*+++
title  = "One warp barrier a step, no condition"
change = "All 32 lanes take part in every step of the last warp's tree, with one __syncwarp() a step."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "host"
block  = 256
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: without the condition lane t writes cell t in the step in which lane t - s reads it, and one
// barrier a step does not part the two: a lane that is late reads a cell that has already taken in its
// neighbour, and counts values twice. It was right with the condition, which the author removed as waste.
// Shows by chance, when the lanes of the last warp do not run in step.
__device__ void fold_last_warp(Acc *cells, unsigned lane)
{
#pragma unroll
    for (unsigned stride = 32; stride > 0; stride /= 2) {
        cells[lane] = Op::combine(cells[lane], cells[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_warp_cells_once(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS), end = min(begin + BLOCK * ITEMS, n);

    Acc value = Op::identity();
#pragma unroll 8
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid < 32)
        fold_last_warp(cells, tid);
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
