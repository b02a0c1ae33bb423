/*+++
title      = "Fence for the block"
change     = "__threadfence_block() orders what its own block sees, and no other."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "last_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
extern "C" __global__ void fence_for_the_block(const In *in, Out *out, size_t n, Acc *partials,
                                            unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool last;
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence_block();
        last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;

    shared[tid] = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += blockDim.x)
        shared[tid] = Op::combine(shared[tid], partials[k]);  // <- hazard
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        *out = Op::finish(shared[0]);
}
