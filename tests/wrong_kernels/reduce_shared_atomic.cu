/*+++
title  = "Threads meet in one shared cell"
change = "No tree: every thread combines its 16 items with one cell of shared memory by an atomic."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "relaunch"
block  = 1024
blocks = [32, 64, 128, 256, 512, 1024]
ops    = ["sum", "min", "max"]
dtypes = ["float32", "float64", "int32", "uint32"]
+++*/
// Fault: thread 0 sets the cell to the identity and no barrier follows, so a warp that has its items
// early can add before the cell is set, and its share is wiped out. The author relied on the loads being
// slow and warp 0 first. Shows when warp 0 is delayed, most where whole warps have data in the cache.
extern "C" __global__ void reduce_shared_atomic(const In *in, Out *out, size_t n)
{
    __shared__ Acc total;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        total = Op::identity();

    Acc value = Op::identity();
    const size_t tile = (size_t)blockIdx.x * BLOCK * ITEMS;
#pragma unroll 4
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = tile + (size_t)item * BLOCK + tid;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }

    Op::atomic(&total, value);
    __syncthreads();
    if (tid == 0)
        out[blockIdx.x] = Op::finish(total);
}
