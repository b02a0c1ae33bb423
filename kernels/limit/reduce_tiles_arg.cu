/*+++
title        = "Tiles of the first extremum"
change       = "A thread keeps its best value and counts the elements up to it; the index is made of that at the end."
expect       = "Ten instructions an element without a jump, instead of thirty with jumps."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
ops          = ["argmin", "argmax"]
+++*/
// Value and index of an element are 16 bytes, and to combine two of them is to look at both, at NaNs and
// at elements that are none. But a thread meets its elements in the order of their indices, so a new one
// must just be better: combined as number 1 with the best as number 0, of which the compiler leaves a
// comparison or two. The best's place is counted in 32 bits. What it is in the input comes once, below.
// An extremum may be taken twice, so behind the end there is the last pack again, and no condition.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };

// Thread 0 gets the block's value.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, lanes));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

// The first of the best elements that this thread takes: of the ends one, and packs of tiles.
__device__ Acc load_tiles(const In *in, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const size_t end = threadIdx.x + (threadIdx.x < head ? 0 : packs * VECTOR);
    const size_t begin = (size_t)blockIdx.x * TILE, step = (size_t)gridDim.x * TILE;
    Acc value = Op::identity();
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value = Op::lift(in[end], end);
    In best{};
    unsigned place = 0, turn = 0;
    for (size_t tile = begin; tile < packs; tile += step, turn++) {
        const size_t first = tile + threadIdx.x;
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            pack[l] = middle[min(first + l * BLOCK, packs - 1)];
        if (turn == 0)
            best = pack[0].at[0];
        unsigned won = ITEMS;
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const In now = pack[k / VECTOR].at[k % VECTOR];
            const bool better = Op::finish(Op::combine(Op::lift(best, 0), Op::lift(now, 1))) == 1;
            best = better ? now : best;
            won = better ? k : won;
        }
        if (won < ITEMS)
            place = turn * ITEMS + won;
    }
    if (turn == 0)
        return value;
    const unsigned k = place % ITEMS;
    const size_t p = min(begin + threadIdx.x + place / ITEMS * step + k / VECTOR * BLOCK, packs - 1);
    return Op::combine(value, Op::lift(best, head + p * VECTOR + k % VECTOR));
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_arg(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: one partial a block; the last block to arrive folds them and writes the answer.
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value;
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
        if (is_last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);
    value = fold_block(value);
    if (tid == 0)
        *out = Op::finish(value);
}
