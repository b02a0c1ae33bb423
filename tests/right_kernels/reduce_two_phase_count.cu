/*+++
title      = "Grid barriers by a growing count"
change     = "Blocks meet twice: once before four of them fold a quarter of the partials each, once before the first folds the quarters."
scope      = "grid"
grid       = "fixed"
fixed_grid = 16
walk       = "contiguous"
finish     = "last_block"
block      = 128
blocks     = [32, 64, 128, 256]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// Right: where the 16 blocks are resident together (a cooperative launch would vouch for it). The count only
// grows during a launch, so a late look cannot miss a phase; a third, unwaited arrival tells who resets it.
__device__ Acc quarters[4];

__device__ void arrive_and_wait(unsigned *counter, unsigned target)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
        while (atomicAdd(counter, 0u) < target)
            __nanosleep(40);
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void reduce_two_phase_count(const In *in, Out *out, size_t n, Acc *partials,
                                                  unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x, blocks = gridDim.x;
    const size_t share = (n + blocks - 1) / blocks;
    const size_t begin = min(blockIdx.x * share, n), end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        partials[blockIdx.x] = shared[0];

    arrive_and_wait(counter, blocks);
    if (blockIdx.x < 4 && tid == 0) {
        value = __ldcg(partials + blockIdx.x);
        for (unsigned k = blockIdx.x + 4; k < blocks; k += 4)
            value = Op::combine(value, __ldcg(partials + k));
        quarters[blockIdx.x] = value;
    }
    arrive_and_wait(counter, 2 * blocks);
    if (tid > 0)
        return;
    if (blockIdx.x == 0) {
        value = quarters[0];
        for (unsigned k = 1; k < min(blocks, 4u); k++)
            value = Op::combine(value, quarters[k]);
        *out = Op::finish(value);
    }
    if (atomicAdd(counter, 1u) == 3 * blocks - 1)
        atomicExch(counter, 0u);
}
