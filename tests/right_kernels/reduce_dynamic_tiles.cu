/*+++
title      = "Persistent blocks draw tiles"
change     = "Blocks stay and draw the next tile from a counter until there is none, so a slow block takes fewer."
scope      = "grid"
grid       = "fixed"
fixed_grid = 44
walk       = "grid_stride"
items      = 4
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "last_block"]
dtypes     = ["int8", "uint8", "int32", "uint32", "int64", "uint64"]
ops        = ["sum", "min", "max", "argmin", "argmax"]
+++*/
// Right: the counter hands out each tile once; two barriers a round keep the drawn number from being
// overwritten in use. The last block resets it when all blocks have drawn a number past the end.
__device__ unsigned long long next_tile;

__device__ void fold_block(Acc *shared, Acc value)
{
    shared[threadIdx.x] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            shared[threadIdx.x] = Op::combine(shared[threadIdx.x], shared[threadIdx.x + stride]);
        __syncthreads();
    }
}

extern "C" __global__ void reduce_dynamic_tiles(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ unsigned long long drawn;
    __shared__ bool last;
    const size_t size = (size_t)BLOCK * ITEMS, tiles = (n + size - 1) / size;

    Acc value = Op::identity();
    while (true) {
        if (threadIdx.x == 0)
            drawn = atomicAdd(&next_tile, 1ull);
        __syncthreads();
        const size_t tile = drawn;
        __syncthreads();
        if (tile >= tiles)
            break;
#pragma unroll
        for (unsigned item = 0; item < ITEMS; item++) {
            const size_t k = tile * size + item * BLOCK + threadIdx.x;
            if (k < n)
                value = Op::combine(value, Op::lift(in[k], k));
        }
    }
    fold_block(shared, value);

    if (threadIdx.x == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        last = atomicAdd(counter, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;
    value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    fold_block(shared, value);
    if (threadIdx.x == 0) {
        *out = Op::finish(shared[0]);
        *counter = 0;
        next_tile = 0;
    }
}
