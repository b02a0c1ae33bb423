/*+++
title        = "Tiles, sum and count in one word"
change       = "One atomic adds a block's sum and its arrival, to the two halves of one word."
expect       = "One trip to memory instead of two: 4.4 us at 2^14 int32, 33.9 at 2^25, where CUB takes 7.0 and 37.2 (H200)."
after        = "reduce_tiles_self_reset"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "one_word"
workspace    = 8
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "atomic"]
dtypes       = ["int32", "uint32", "int8", "uint8"]
ops          = ["sum"]
+++*/
// The sum is in the upper 32 bits, where what wraps falls out of the word; the count is in the lower 32,
// where it never carries, for a grid has fewer blocks. What an atomic returns is the word before it: the
// block that finds all others counted there knows the whole sum, and nothing has to be ordered. Whole
// numbers only: a float sum is not that of its bits, and the atomic of a float2 (cc 9.0) adds each half
// for itself, so that a count may be seen before its sum. Whole numbers hide the order of blocks, too.
#include <cuda/atomic>

using Word = unsigned long long;
static_assert(sizeof(Acc) == 4, "sum and count share a word of 64 bits");

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
reduce_tiles_one_word(const In *in, Out *out, size_t n, Word *workspace)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: one atomic a block; the last block to arrive has the sum, and clears the word.
    if (threadIdx.x == 0) {
        const cuda::atomic_ref<Word, cuda::thread_scope_device> word(*workspace);
        const Word mine = (Word)(unsigned)value << 32 | 1;
        const Word all = mine + word.fetch_add(mine, cuda::std::memory_order_relaxed);
        if ((unsigned)all == gridDim.x) {
            *out = Op::finish((Acc)(all >> 32));
            word.store(0, cuda::std::memory_order_relaxed);
        }
    }
}
