/*+++
title      = "Partials folded in halves"
change     = "The last block takes the partials into shared memory and folds them in halves, as it did its elements."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: the second tree begins at half the grid, and where that is odd at any step the odd partial is
// dropped. A full grid has 64 blocks and is right. Shows for smaller inputs whose number of blocks is no
// power of two: 3 blocks lose the third, 6 lose two of six.
extern "C" __global__ void reduce_halving_partials(const In *in, Out *out, size_t n, Acc *partials,
                                                   unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    auto halve = [&](unsigned count) {
        for (unsigned stride = count / 2; stride > 0; stride /= 2) {
            __syncthreads();
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        }
        __syncthreads();
    };

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    halve(BLOCK);

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    if (tid < gridDim.x)
        shared[tid] = __ldcg(partials + tid);
    halve(gridDim.x);
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
