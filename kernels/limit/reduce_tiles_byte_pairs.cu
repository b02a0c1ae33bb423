/*+++
title        = "Tiles of two bytes a comparison"
change       = "A word of four bytes is compared as pairs of 16 bits, once as it lies and once shifted by a byte."
expect       = "Extremes of bytes at the speed of memory: 3 instructions for 4 bytes, not 8 (sm_90)."
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
// An SM compares two numbers of 16 bits by one instruction (from sm_90 on), and none of 8. But the upper
// byte of 16 bits decides which is larger, and only among equals the lower one, which then does not matter.
// So the odd bytes of a word are in their place as they lie, and the even ones when it is shifted by 8;
// nothing is cut out or widened before the end, where the upper bytes are the answer.
#include <cuda/atomic>

// The words of the smallest and the largest bytes, and of each pair the larger and the smaller.
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

struct alignas(16) Pack { unsigned at[4]; };

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
    const bool is_max = Op::combine(Acc(0), Acc(1)) == Acc(1); // which the compiler knows
    unsigned odd = is_max ? Pairs<In>::LEAST : Pairs<In>::MOST, even = odd;
    for (size_t tile = (size_t)blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        Pack pack[LOADS];
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
