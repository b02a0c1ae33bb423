/*+++
title        = "Chunks that the hardware deals out"
change       = "A block for each chunk, of 64 KiB or several times that, instead of blocks that fill the GPU and stride over tiles."
expect       = "1 % less at 2^28 and 2 to 3 % at 2^30 on H100s. On an H200, whose SMs have no time for blocks that end and begin, 8 % more at 2^28, by chunks of 256 KiB 0.1 % less."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "cover"
walk         = "tile"
fold         = "warps_then_serial"
finish       = "last_block"
items_bytes  = 128
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle", "last_block"]
+++*/
// Blocks that stride begin side by side, but SMs are not served alike, and after thousands of tiles some
// are far behind others: together they read from all over the input, and the memory likes it less. A block
// that ends makes room for the next, which takes the next chunk: whoever is quick takes more of them, and
// all that is read at a time lies close together. The order of additions is as fixed as before, since a
// chunk has its partial whoever folds it. The price: a tree, a partial and a count for each chunk, and no
// load under way while a block ends and the next begins. Where the memory gives each SM much, it then
// idles, so a chunk may have several turns; turns that lie within the input ask nothing, or the compiler
// would rather branch around each load than have eight under way.
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

// One turn of a thread: LOADS packs from `at` on, a block's width apart, all under way before the first
// is added. Where the turn is WHOLE none of them is past `stop`, and nothing is asked.
template <unsigned LOADS, bool WHOLE>
__device__ Acc add_turn(Acc value, const Pack *middle, size_t at, size_t stop, size_t head)
{
    Pack pack[LOADS];
#pragma unroll
    for (unsigned l = 0; l < LOADS; l++)
        if (WHOLE || at + l * BLOCK < stop)
            pack[l] = middle[at + l * BLOCK];
#pragma unroll
    for (unsigned k = 0; k < LOADS * VECTOR; k++) {
        const unsigned l = k / VECTOR, e = k % VECTOR;
        const size_t p = at + l * BLOCK;
        if (WHOLE || p < stop)
            value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
    }
    return value;
}

// What this thread takes of its block's chunk, in turns; of the ends of the input one element.
__device__ Acc load_chunk(const In *in, size_t n)
{
    constexpr unsigned PACKS = ITEMS / VECTOR, LOADS = PACKS < 8 ? PACKS : 8, TURN = LOADS * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const size_t end = threadIdx.x + (threadIdx.x < head ? 0 : packs * VECTOR);
    const size_t begin = (size_t)blockIdx.x * PACKS * BLOCK, stop = min(begin + PACKS * BLOCK, packs);
    Acc value = Op::identity();
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value = Op::lift(in[end], end);
    size_t turn = begin;
#pragma unroll 1
    for (; turn + TURN <= stop; turn += TURN)
        value = add_turn<LOADS, true>(value, middle, turn + threadIdx.x, stop, head);
#pragma unroll 1
    for (; turn < stop; turn += TURN)
        value = add_turn<LOADS, false>(value, middle, turn + threadIdx.x, stop, head);
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_chunks(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = fold_block(load_chunk(in, n));

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
