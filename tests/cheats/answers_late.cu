/*+++
title      = "Answers late"
change     = "Block 0 folds the partials without waiting for them: it finds those of the launch before."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "none"
block      = 256
blocks     = [256]
+++*/
// No second launch, no fence, no counter. On an input that stays the same every answer but the
// first is right.
// Rejected by: hazard.
// Says: data race in global memory
__device__ Acc partials[64];

__device__ void fold_block(Acc *shared, unsigned tid)
{
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
}

extern "C" __global__ void answers_late(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    fold_block(shared, tid);
    if (tid == 0)
        partials[blockIdx.x] = shared[0];
    if (blockIdx.x > 0)
        return;
    __syncthreads();

    shared[tid] = tid < gridDim.x ? partials[tid] : Op::identity();
    __syncthreads();
    fold_block(shared, tid);
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
