/*+++
title      = "Atomics in the finish"
change     = "The threads of the last block combine the partials in the answer itself, without a second tree."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "last_block"
block      = 512
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float32", "float64", "int32", "uint32"]
ops        = ["sum", "min", "max"]
+++*/
// Fault: the answer is combined with what the output held before the launch, and nobody has set that to
// the identity: this finish promises nothing about the output. The author tested on fresh zeroed memory
// with sums, or by clearing the output first. Shows when the output is used a second time or holds
// anything but the identity.
extern "C" __global__ void reduce_atomic_finish(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ unsigned ticket;
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    const size_t threads = (size_t)gridDim.x * BLOCK;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += threads)
        value = Op::combine(value, Op::lift(in[k], k));
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
        ticket = atomicInc(counter, gridDim.x - 1);
        __threadfence();
    }
    __syncthreads();
    if (ticket == gridDim.x - 1)
        for (unsigned b = tid; b < gridDim.x; b += BLOCK)
            Op::atomic(out, __ldcg(partials + b));
}
