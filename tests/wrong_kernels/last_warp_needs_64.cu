/*+++
title      = "Last warp from 64 cells down"
change     = "The block's tree stops at 64 cells; one warp folds these in registers after a first step in shared memory."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["warp_unroll", "shuffle", "multi_add"]
+++*/
// Fault: the last warp's first step reads cells 32 to 63. A block of 32 threads has none: it reads behind
// its shared array and takes in what lies there. All larger blocks are right.
extern "C" __global__ void last_warp_needs_64(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t tile = (size_t)blockIdx.x * BLOCK * ITEMS;

    Acc value = Op::identity();
    for (unsigned j = 0; j < ITEMS; j++) {
        const size_t k = tile + j * BLOCK + tid;
        value = Op::combine(value, k < n ? Op::lift(in[k], k) : Op::identity());
    }
    cells[tid] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s >= 64; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid < 32) {
        value = Op::combine(cells[tid], cells[tid + 32]);
        for (unsigned d = 16; d > 0; d /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
        if (tid == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
