/*+++
title        = "Tiles of bytes, four per instruction"
change       = "A dot product with ones adds four bytes to an int at once; the int joins the sum once per tile."
expect       = "Sums of bytes at memory speed: a quarter of the additions, and no conversion of single bytes."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
elements     = "as_they_lie"
fold         = "warps_then_serial"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
dtypes       = ["int8", "uint8"]
ops          = ["sum", "mean"]
+++*/
// A thread that adds single bytes extracts each from its word, widens it and adds it: two or three
// instructions per byte, while bytes arrive four times as fast as floats. __dp4a multiplies the four bytes
// of a word by four others and adds the products to 32 bits, in one instruction. With ones as the other
// operands that is the sum of four bytes. The sum of a tile's share fits 32 bits; the whole sum has type Acc.
#include "tiles.cuh"
#include <cuda/atomic>

template <class Byte> struct Four { using Word = unsigned; };
template <> struct Four<signed char> { using Word = int; };
using Word = Four<In>::Word;

struct alignas(16) Words { Word at[4]; }; // a pack as 32-bit words

// Reduces the elements of this thread, as load_tiles in tiles.cuh does, with words instead of elements.
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
        Word sum = 0;
#pragma unroll
        for (unsigned k = 0; k < LOADS * 4; k++)
            if (first + k / 4 * BLOCK < packs)
                sum = __dp4a(pack[k / 4].at[k % 4], (Word)0x01010101, sum);
        value = Op::combine(value, Acc(sum));
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_dp4a(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = fold_block(load_words(in, n));

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
