/*+++
title        = "Tiles, warps folded in one instruction"
change       = "The 32 values of a warp are folded by one instruction that all lanes issue, and so are the warps' values."
expect       = "Two instructions where there were five shuffles and a turn a warp; once a block, so it hardly shows."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
dtypes       = ["int32", "uint32", "int8", "uint8"]
ops          = ["sum", "min", "max"]
+++*/
// Since cc 8.0 the hardware folds 32-bit integers across a warp and gives all lanes the result; on older
// GPUs the same lines are shuffles. It adds, or takes the least or the greatest: which of them Op is,
// the compiler sees from two small numbers. Of floats there is no such sum: it would need an order.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };

static_assert(sizeof(Acc) == 4, "the hardware folds 32-bit integers");

// All lanes get the warp's value.
__device__ Acc fold_warp(Acc value)
{
#if __CUDA_ARCH__ >= 800
    if (Op::combine(1, 1) == 2)
        return __reduce_add_sync(0xffffffffu, value);
    return Op::combine(0, 1) == 0 ? __reduce_min_sync(0xffffffffu, value)
                                  : __reduce_max_sync(0xffffffffu, value);
#else
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
#endif
}

// All threads get the block's value.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const unsigned lane = threadIdx.x % 32;
    value = fold_warp(value);
    if (lane == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return fold_warp(lane < BLOCK / 32 ? of_warp[lane] : Op::identity());
}

// What this thread takes of the input: of the ends one element, and packs of tiles.
__device__ Acc load_tiles(const In *in, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const size_t end = threadIdx.x + (threadIdx.x < head ? 0 : packs * VECTOR);
    Acc value = Op::identity();
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value = Op::lift(in[end], end);
    for (size_t tile = (size_t)blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * BLOCK < packs)
                pack[l] = middle[first + l * BLOCK];
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned l = k / VECTOR, e = k % VECTOR;
            const size_t p = first + l * BLOCK;
            if (p < packs)
                value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_redux(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
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
