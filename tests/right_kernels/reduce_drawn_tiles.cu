/*+++
title      = "Tiles drawn from the counter"
change     = "Blocks draw the next tile from the word behind the count of arrivals; each is folded before it is added."
scope      = "grid"
grid       = "fill"
walk       = "tickets"
items      = 4
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "last_block"]
+++*/
// Right: whoever draws a tile, floats are within the bound, which allows for one block that takes all.
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

extern "C" __global__ void reduce_drawn_tiles(const In *in, Out *out, size_t n, Acc *partials,
                                              unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ unsigned drawn;
    __shared__ bool last;
    const size_t size = (size_t)BLOCK * ITEMS;

    Acc value = Op::identity();
    for (size_t tile = blockIdx.x; tile * size < n; tile = gridDim.x + (size_t)drawn) {
        Acc sum = Op::identity();
        for (unsigned item = 0; item < ITEMS; item++) {
            const size_t k = tile * size + item * BLOCK + threadIdx.x;
            if (k < n)
                sum = Op::combine(sum, Op::lift(in[k], k));
        }
        value = Op::combine(value, sum);
        __syncthreads();
        if (threadIdx.x == 0)
            drawn = atomicAdd(&counter[1], 1u);
        __syncthreads();
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
        counter[0] = counter[1] = 0;
    }
}
