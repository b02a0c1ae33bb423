/*+++
title  = "Partials in device memory of the module"
change = "Partials and the arrival count live in __device__ variables, so the kernel needs no workspace."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 4
finish = "last_block"
block  = 256
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: the array has 1024 places and the grid grows with the input; block 1024 writes beyond its end,
// into whatever the module keeps there, and the last block reads it back from there. The author sized it
// for a million elements at 256 x 4. Shows for n > 1024 * BLOCK * ITEMS, and for two launches at once in
// two streams, which share the array.
__device__ Acc block_results[1024];
__device__ unsigned blocks_done;

__device__ Acc fold_block(Acc value)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    value = shared[0];
    __syncthreads();
    return value;
}

extern "C" __global__ void reduce_resident_partials(const In *in, Out *out, size_t n, Acc *, unsigned *)
{
    __shared__ bool last;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + threadIdx.x;

    Acc value = Op::identity();
    for (unsigned item = 0; item < ITEMS; item++)
        if (i + item * BLOCK < n)
            value = Op::combine(value, Op::lift(in[i + item * BLOCK], i + item * BLOCK));
    value = fold_block(value);

    if (threadIdx.x == 0) {
        block_results[blockIdx.x] = value;
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;

    value = Op::identity();
    for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(block_results + b));
    value = fold_block(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
