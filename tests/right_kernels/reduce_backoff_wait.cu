/*+++
title      = "First block waits, with back-off"
change     = "Block 0 and no other folds the partials; it sleeps ever longer between looks at the arrival count."
scope      = "grid"
grid       = "fixed"
fixed_grid = 16
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// Right: no block but the first waits, so the others need only one place on the GPU beside it; a fence
// stands on each side of the count. The first block resets the count when nobody is left to change it.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    __syncthreads();
    shared[tid] = value;
    __syncthreads();
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    return shared[0];
}

extern "C" __global__ void reduce_backoff_wait(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(value);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        atomicAdd(counter, 1u);
    }
    if (blockIdx.x != 0)
        return;

    if (threadIdx.x == 0) {
        unsigned pause = 32;
        while (atomicAdd(counter, 0u) < gridDim.x) {
            __nanosleep(pause);
            pause = min(2 * pause, 1024u);
        }
        __threadfence();
        atomicExch(counter, 0u);
    }
    __syncthreads();
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    value = fold_block(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
