/*+++
title        = "Tiles of bytes, compared in pairs"
change       = "A word of four bytes is compared as two 16-bit halves, once unshifted and once shifted by a byte."
expect       = "Minimum and maximum of bytes at memory speed: 3 instructions for 4 bytes instead of 8 (sm_90)."
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
ops          = ["max", "min"]
+++*/
// An SM compares two pairs of 16-bit numbers in one instruction (sm_90 and later), but no 8-bit numbers. The
// upper byte of a 16-bit number decides the comparison; the lower one matters only between equal upper
// bytes, where either choice is right. So the odd bytes of a word are compared in place, and the even bytes
// after a shift by 8. Nothing is extracted or widened until the end, when the upper bytes are the result.
#include "tiles.cuh"
#include <cuda/atomic>

// Words of four smallest and four largest bytes, and the larger and smaller of each 16-bit half.
template <class Byte> struct Pairs {
    static constexpr unsigned LEAST = 0, MOST = 0xffffffff;
    static __device__ unsigned larger(unsigned a, unsigned b) { return __vmaxu2(a, b); }
    static __device__ unsigned smaller(unsigned a, unsigned b) { return __vminu2(a, b); }
};
template <> struct Pairs<signed char> {
    static constexpr unsigned LEAST = 0x80808080, MOST = 0x7f7f7f7f;
    static __device__ unsigned larger(unsigned a, unsigned b) { return __vmaxs2(a, b); }
    static __device__ unsigned smaller(unsigned a, unsigned b) { return __vmins2(a, b); }
};

struct alignas(16) Words { unsigned at[4]; }; // a pack as 32-bit words

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
    const bool is_max = Op::combine(Acc(0), Acc(1)) == Acc(1); // a constant for the compiler
    unsigned odd = is_max ? Pairs<In>::LEAST : Pairs<In>::MOST, even = odd;
    for (size_t tile = (size_t)blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        Words pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * BLOCK < packs)
                pack[l] = middle[first + l * BLOCK];
#pragma unroll
        for (unsigned k = 0; k < LOADS * 4; k++)
            if (first + k / 4 * BLOCK < packs) {
                const unsigned word = pack[k / 4].at[k % 4], up = word << 8;
                odd = is_max ? Pairs<In>::larger(odd, word) : Pairs<In>::smaller(odd, word);
                even = is_max ? Pairs<In>::larger(even, up) : Pairs<In>::smaller(even, up);
            }
    }
    const unsigned pairs = is_max ? Pairs<In>::larger(odd, even) : Pairs<In>::smaller(odd, even);
    value = Op::combine(value, Op::lift(In(pairs >> 24), 0));
    value = Op::combine(value, Op::lift(In(pairs >> 8), 0));
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_byte_pairs(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
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
