/*+++
title      = "Keeps a counter"
change     = "Keeps nothing from launch to launch but a counter that is back at 0."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [256]
+++*/
// A variable of the file outlives a launch here too, as in NVIDIA's threadFenceReduction: the
// counter of arrivals, which wraps to 0 by itself, and partials that are written before they are
// read.
__device__ unsigned arrived;
__device__ Acc kept[64];

__device__ void fold_block(Acc *shared, unsigned tid)
{
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
}

extern "C" __global__ void keeps_the_answer(const In *in, Out *out, size_t n, Acc *, unsigned *)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool last;
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    fold_block(shared, tid);

    if (tid == 0) {
        kept[blockIdx.x] = shared[0];
        __threadfence();
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;

    shared[tid] = tid < gridDim.x ? __ldcg(kept + tid) : Op::identity();
    __syncthreads();
    fold_block(shared, tid);
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
