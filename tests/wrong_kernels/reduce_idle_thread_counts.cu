/*+++
title  = "An idle thread counts"
change = "Thread 0 stores the partial while the last thread of the block, idle since the first step, counts."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "last_block"
block  = 256
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: the thread that counts is not the thread that stores, and no barrier lies between, so the
// count may be seen before the partial is even stored; the fence of thread 0 orders nothing of another
// thread. The author wanted the atomic off the critical path. Shows when the first warp is delayed just
// there, with two blocks and more.
extern "C" __global__ void reduce_idle_thread_counts(const In *in, Out *out, size_t n, Acc *partials,
                                                     unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++)
        if (i + item * BLOCK < n)
            value = Op::combine(value, Op::lift(in[i + item * BLOCK], i + item * BLOCK));
    shared[tid] = value;
    __syncthreads();
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
    } else if (tid == BLOCK - 1) {
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;

    value = Op::identity();
    for (unsigned b = tid; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(&partials[b]));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
