/*+++
title  = "Only the working half waits"
change = "The barrier of each tree step is met by the threads that took part in the step."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 4
finish = "relaunch"
block  = 256
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: __syncthreads() stands inside `if (tid < stride)`, so threads of one block, and from stride 16
// on lanes of one warp, wait at different barriers: undefined by the programming guide. The author
// wanted idle warps to be spared the waits. Today's hardware counts arrivals whatever the line and
// mostly gets through; another compiler or GPU may hang or let a warp run ahead.
extern "C" __global__ void reduce_working_half(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t base = (size_t)blockIdx.x * BLOCK * ITEMS + tid;

    Acc value = Op::identity();
    for (unsigned item = 0; item < ITEMS; ++item)
        if (base + item * BLOCK < n)
            value = Op::combine(value, Op::lift(in[base + item * BLOCK], base + item * BLOCK));
    cells[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
        if (tid < stride) {
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
            __syncthreads();
        }
    }
    __syncthreads();

    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
