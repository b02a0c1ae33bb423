/*+++
title        = "Tiles for argmin and argmax"
change       = "A tile is reduced by value only; where the value improves, its pack is read again and searched."
expect       = "2^25 float32 in 39 us; with an index next to each value 45, a sum takes 35 (H200)."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "tree"
finish       = "last_block"
items_bytes  = 128
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
ops          = ["argmin", "argmax"]
+++*/
// Value and index of an element take up to 16 bytes, and combining two pairs compares values, indices and
// NaNs. But a thread reads its elements in the order of their indices, so only a better value can win, and it
// is enough to know which pack improved the value last. That pack is still in the L1 and is searched there.
// No registers hold indices, so eight loads are in flight. The launch bound of 1024 threads per SM leaves 64
// registers per thread; with 2048 threads and 32 registers only four loads fit, which is slower.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };

// Reduces one value per lane over the warp. Lane 0 returns the result. The loop is not unrolled: code that
// runs once misses the instruction cache.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll 1
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, lanes));
    return value;
}

// Reduces one value per thread over the block. Thread 0 returns the result.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    value = fold_warp(value);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return fold_warp(threadIdx.x < BLOCK / 32 ? of_warp[threadIdx.x] : Op::identity());
}

// The best element of this thread, the first of equal ones. Tiles and ends are as in tiles.cuh. Past the end
// the last pack is read again instead of a bounds check: an extremum may be taken twice.
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
    if (begin >= packs)
        return value;
    Scalar best = Scalar(middle[min(begin + threadIdx.x, packs - 1)].at[0]);
    unsigned position = 0, turn = 0; // the best element: its position among the items of this thread, 32 bits
    for (size_t tile = begin; tile < packs; tile += step, turn++) {
        const Pack *here = middle + tile;
        const unsigned last = min(packs - tile, (size_t)TILE) - 1;
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            pack[l] = here[min(threadIdx.x + l * BLOCK, last)];
        unsigned won = LOADS;
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++) {
            const Scalar before = best;
#pragma unroll
            for (unsigned e = 0; e < VECTOR; e++)
                best = Op::best(best, Scalar(pack[l].at[e]));
            won = Op::better(best, before) ? l : won;
        }
        if (won < LOADS) {
            const Pack again = here[min(threadIdx.x + won * BLOCK, last)];
            unsigned e = VECTOR - 1;
#pragma unroll
            for (unsigned k = VECTOR - 1; k > 0; k--)
                e = Op::better(best, Scalar(again.at[k - 1])) ? e : k - 1;
            position = turn * ITEMS + won * VECTOR + e;
        }
    }
    const unsigned k = position % ITEMS;
    const size_t p = min(begin + threadIdx.x + position / ITEMS * step + k / VECTOR * BLOCK, packs - 1);
    return Op::combine(value, Op::lift(In(best), head + p * VECTOR + k % VECTOR));
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
reduce_tiles_arg(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
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
