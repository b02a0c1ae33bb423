/*+++
title        = "Tiles, partials by mailbox"
change       = "Each block posts its partial with the number of the launch; block 0 polls all and folds them."
expect       = "0.6 to 1.1 us less up to 2^16, 0.3 at 2^20 (H200); at the speed of a sum in memory from 2^22 on."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "mailbox"
workspace    = "2 Acc a block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle"]
+++*/
// A word of 64 bits is written and read whole. Half of it holds 32 bits of a partial, the other half the
// number of the launch, its epoch: who finds the epoch has the value that came with it, and nothing else
// need be ordered. So block 0 just reads until all words are of this launch. Old words are of other
// epochs, whatever sizes came before. Block 0 alone waits, so all other blocks need is room to run.
// Left out: words that 2^32 launches have not touched. The epoch of memory that is 0 is never used.
#include <cuda/atomic>

using Word = unsigned long long;
using Post = cuda::atomic_ref<Word, cuda::thread_scope_device>;
constexpr unsigned WORDS = sizeof(Acc) / 4;

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

__device__ void post(Word *box, Word epoch, Acc value)
{
    unsigned bits[WORDS];
    memcpy(bits, &value, sizeof value);
    for (unsigned w = 0; w < WORDS; w++)
        Post(box[w]).store(epoch << 32 | bits[w], cuda::std::memory_order_relaxed);
}

__device__ Acc collect(Word *box, Word epoch)
{
    unsigned bits[WORDS];
    for (unsigned w = 0; w < WORDS; w++) {
        Word word = 0;
        while (word >> 32 != epoch)
            word = Post(box[w]).load(cuda::std::memory_order_relaxed);
        bits[w] = (unsigned)word;
    }
    Acc value;
    memcpy(&value, bits, sizeof value);
    return value;
}

// Blocks that an SM must have room for; 0, as the compiler likes, has room for three of four (H200).
constexpr unsigned HELD = sizeof(In) == 4 && WORDS <= 2 ? SM_THREADS / BLOCK : 0;
extern "C" __global__ void __launch_bounds__(BLOCK, HELD)
reduce_tiles_mailbox(const In *in, Out *out, size_t n, Word *workspace)
{
    const unsigned tid = threadIdx.x;

    // Block 0 posts nothing, so its box holds the epoch of the launch before. The barrier of the warp
    // keeps this load before those of the tiles; behind them it would be waited for.
    const Post last(workspace[0]);
    const unsigned before = (unsigned)last.load(cuda::std::memory_order_relaxed);
    __syncwarp();
    const Word epoch = before + 1 ? before + 1 : 1;

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: one partial a block; block 0 folds them in the order of blocks and writes the answer.
    if (blockIdx.x > 0) {
        if (tid == 0)
            post(workspace + blockIdx.x * WORDS, epoch, value);
        return;
    }
    if (tid > 0)
        value = Op::identity();
    for (unsigned k = tid > 0 ? tid : BLOCK; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, collect(workspace + k * WORDS, epoch));
    __syncthreads();
    value = fold_block(value);
    if (tid == 0) {
        *out = Op::finish(value);
        last.store(epoch, cuda::std::memory_order_relaxed);
    }
}
