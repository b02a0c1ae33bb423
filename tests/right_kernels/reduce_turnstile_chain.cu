/*+++
title      = "Blocks in a chain, order kept"
change     = "Each block waits for the one with the ticket before it, puts its share behind the running product and lets the next one pass."
scope      = "grid"
grid       = "fixed"
fixed_grid = 20
walk       = "stream_fold"
finish     = "last_block"
order      = "kept"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "order_kept"]
ops        = ["matmul", "affine", "min", "max", "argmin", "argmax"]
+++*/
// Right: shares follow tickets, and tickets are drawn by blocks that run, so whoever is waited for runs and
// comes through. The turnstile's number is released after the running product and acquired before it.
#include <cuda/atomic>

__device__ cuda::atomic<unsigned, cuda::thread_scope_device> turnstile;

extern "C" __global__ void reduce_turnstile_chain(const In *in, Out *out, size_t n, Acc *partials,
                                                  unsigned *counter)
{
    __shared__ Acc shared[2 * BLOCK];
    __shared__ unsigned drawn;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        drawn = atomicAdd(counter, 1u);
    __syncthreads();
    const unsigned ticket = drawn;
    const size_t share = (n + gridDim.x - 1) / gridDim.x, begin = min(ticket * share, n);
    const size_t end = min(begin + share, n);

    shared[tid] = begin + tid < end ? Op::lift(in[begin + tid], begin + tid) : Op::identity();
    for (size_t tile = begin + BLOCK; tile < end; tile += BLOCK) {
        const size_t k = tile + tid;
        shared[BLOCK + tid] = k < end ? Op::lift(in[k], k) : Op::identity();
        __syncthreads();
        const Acc pair = Op::combine(shared[2 * tid], shared[2 * tid + 1]);
        __syncthreads();
        shared[tid] = pair;
    }
    __syncthreads();
    for (unsigned stride = 1; stride < BLOCK; stride *= 2) {
        const unsigned left = 2 * stride * tid;
        if (left < BLOCK)
            shared[left] = Op::combine(shared[left], shared[left + stride]);
        __syncthreads();
    }
    if (tid > 0)
        return;

    Acc running = shared[0];
    while (turnstile.load(cuda::std::memory_order_acquire) != ticket)
        ;
    if (ticket > 0)
        running = Op::combine(partials[0], running);
    if (ticket == gridDim.x - 1) {
        *out = Op::finish(running);
        *counter = 0;
        turnstile.store(0, cuda::std::memory_order_relaxed);
    } else {
        partials[0] = running;
        turnstile.store(ticket + 1, cuda::std::memory_order_release);
    }
}
