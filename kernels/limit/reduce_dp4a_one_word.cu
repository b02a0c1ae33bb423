/*+++
title        = "Four bytes per instruction, one word"
change       = "One atomic per block instead of a partial, a count and a last block that reduces."
expect       = "4.8 us at 2^20 int8 and 15.2 at 2^25, where CUB takes 7.3 and 18.3 (H100)."
after        = "reduce_tiles_dp4a"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
elements     = "as_they_lie"
fold         = "warps_then_serial"
finish       = "one_word"
workspace    = 8
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "atomic"]
dtypes       = ["int8", "uint8"]
ops          = ["sum"]
+++*/
// For few bytes the additions take almost no time, and combining the blocks is what is left to improve: one
// atomic for integers. The sum is in the upper half of the word, the count in the lower half, as in
// reduce_tiles_one_word. A mean would need more than 32 bits for its sum, so it stays with the last block.
#include "tiles.cuh"
#include <cuda/atomic>

template <class Byte> struct Four { using Bytes = unsigned; };
template <> struct Four<signed char> { using Bytes = int; };
using Bytes = Four<In>::Bytes;
using Word = unsigned long long;
static_assert(sizeof(Acc) == 4, "sum and count share a word of 64 bits");

struct alignas(16) Words { Bytes at[4]; }; // a pack as 32-bit words

// Reduces the elements of this thread, as in reduce_tiles_dp4a.
__device__ Acc load_words(const In *in, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Words *middle = (const Words *)(in + head);
    const size_t end = threadIdx.x + (threadIdx.x < head ? 0 : packs * VECTOR);
    Acc value = Op::identity();
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value = Op::lift(in[end], end);
    for (size_t tile = (size_t)blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        Words pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * BLOCK < packs)
                pack[l] = middle[first + l * BLOCK];
        Bytes sum = 0;
#pragma unroll
        for (unsigned k = 0; k < LOADS * 4; k++)
            if (first + k / 4 * BLOCK < packs)
                sum = __dp4a(pack[k / 4].at[k % 4], (Bytes)0x01010101, sum);
        value = Op::combine(value, Acc(sum));
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_dp4a_one_word(const In *in, Out *out, size_t n, Word *workspace)
{
    // Load and tree.
    const Acc value = fold_block(load_words(in, n));

    // Write: one atomic per block; the last block to arrive has the sum and resets the word.
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
