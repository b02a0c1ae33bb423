/*+++
title  = "Large tiles with a light path for one block"
change = "16 items a thread; a launch of a single block takes a shorter way to the tree."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "relaunch"
block  = 512
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: the light path stores its values and enters the tree without a barrier; the barrier stands in
// the other branch only. The author tuned the last launch, where few threads hold anything, and saw no
// harm. Shows when one block has more than half a block of elements: a warp then adds cells that another
// warp has not written yet. With few partials the upper half only brings identities, early.
extern "C" __global__ void reduce_light_path(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS);

    if (gridDim.x == 1) {
        Acc value = Op::identity();
        for (size_t k = tid; k < n; k += BLOCK)
            value = Op::combine(value, Op::lift(in[k], k));
        shared[tid] = value;
    } else {
        Acc value = Op::identity();
#pragma unroll
        for (unsigned item = 0; item < ITEMS; item++) {
            const size_t k = begin + item * BLOCK + tid;
            if (k < n)
                value = Op::combine(value, Op::lift(in[k], k));
        }
        shared[tid] = value;
        __syncthreads();
    }

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
