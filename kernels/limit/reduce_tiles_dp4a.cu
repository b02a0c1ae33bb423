/*+++
title        = "Tiles of four bytes an addition"
change       = "A dot product with ones adds four bytes to an int at once; the int joins the sum once a tile."
expect       = "Sums of bytes at the speed of memory: a quarter of the additions, and no conversion of each byte."
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
// A thread that adds bytes one by one takes each out of its word, widens it and adds it: two or three
// instructions a byte, and bytes come four times as fast as floats. dp4a multiplies the four bytes of a
// word by four others and adds the products to 32 bits, all in one instruction. With ones for the others
// that is their sum. A thread's share of a tile is far from 2^32; a whole sum may not be, so it has Acc.
#include <cuda/atomic>

template <class Byte> struct Four { using Word = unsigned; };
template <> struct Four<signed char> { using Word = int; };
using Word = Four<In>::Word;

struct alignas(16) Pack { Word at[4]; };

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
