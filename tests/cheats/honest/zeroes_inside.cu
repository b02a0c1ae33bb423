/*+++
title  = "Adds up in a variable of its own"
change = "Blocks add to a variable; the last to arrive copies it and sets it back to 0."
scope  = "grid"
grid   = "cover"
items  = 16
ops    = ["sum"]
walk   = "tile"
finish = "last_block"
block  = 256
blocks = [256]
+++*/
// One launch, too, and nothing to be set before it: each launch leaves the variable as it found it.
__device__ Acc total;

extern "C" __global__ void zeroes_inside(const In *in, Out *out, size_t n, Acc *, unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

    Acc value = Op::identity();
    for (size_t k = first + tid; k < n && k < first + BLOCK * ITEMS; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid > 0)
        return;
    Op::atomic(&total, shared[0]);
    __threadfence();
    if (atomicInc(counter, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence();
        *out = Op::finish(__ldcg(&total));
        total = Op::identity();
    }
}
