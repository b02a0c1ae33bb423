/*+++
title  = "Samples"
change = "Reads a sixteenth of each tile and scales it up."
scope  = "grid"
grid   = "cover"
items  = 16
dtypes = ["float32"]
ops    = ["sum"]
walk   = "tile"
finish = "atomic"
block  = 256
blocks = [256]
+++*/
// A sixteenth of the loads, so up to sixteen times the bandwidth on paper. On random data the
// answer looks right within a tolerance somebody chose.
// Rejected by: patterns.
// Says: exact.*got
extern "C" __global__ void samples(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);
    const size_t held = n - first < BLOCK * ITEMS ? n - first : BLOCK * ITEMS;
    const size_t read = held < BLOCK ? held : BLOCK;

    shared[tid] = tid < read ? in[first + tid] * held / read : 0;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        Op::atomic(out, shared[0]);
}
