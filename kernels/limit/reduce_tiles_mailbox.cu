/*+++
title        = "Tiles, partials by the LL protocol"
change       = "Each block stores its partial with the launch number in one word; block 0 polls and reduces all words."
expect       = "Saves 0.6 to 1.1 us up to 2^16 and 0.3 at 2^20 (H200); equal to one sum in memory from 2^22 on."
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
// The LL protocol of NCCL: each block stores its partial and a flag in one 64-bit word. The flag is the epoch,
// the number of the launch. A 64-bit store is atomic, so a reader that sees the epoch of this launch in the
// high word also sees its data in the low word. No fence and no count is needed: block 0 polls the slots of all
// blocks until each has the epoch of this launch. Only block 0 waits, so the other blocks need not be resident
// at the same time. Limit: a slot untouched for 2^32 launches could alias an old epoch.
#include "tiles.cuh"
#include <cuda/atomic>

using Word = unsigned long long;
using Slot = cuda::atomic_ref<Word, cuda::thread_scope_device>;
constexpr unsigned WORDS = sizeof(Acc) / 4;

// Stores a partial in the slot of this block.
__device__ void ll_store(Word *slot, Word epoch, Acc value)
{
    unsigned bits[WORDS];
    memcpy(bits, &value, sizeof value);
    for (unsigned w = 0; w < WORDS; w++)
        Slot(slot[w]).store(epoch << 32 | bits[w], cuda::std::memory_order_relaxed);
}

// Waits until a slot has the epoch of this launch, and returns its partial.
__device__ Acc ll_poll(Word *slot, Word epoch)
{
    unsigned bits[WORDS];
    for (unsigned w = 0; w < WORDS; w++) {
        Word word = 0;
        while (word >> 32 != epoch)
            word = Slot(slot[w]).load(cuda::std::memory_order_relaxed);
        bits[w] = (unsigned)word;
    }
    Acc value;
    memcpy(&value, bits, sizeof value);
    return value;
}

// As MIN_BLOCKS in tiles.cuh, for 4-byte types too: without it only three of four blocks fit an SM (H200).
constexpr unsigned LL_MIN_BLOCKS = sizeof(In) == 4 && WORDS <= 2 ? SM_THREADS / BLOCK : 0;
extern "C" __global__ void __launch_bounds__(BLOCK, LL_MIN_BLOCKS)
reduce_tiles_mailbox(const In *in, Out *out, size_t n, Word *workspace)
{
    const unsigned tid = threadIdx.x;

    // Block 0 stores no partial, so its slot holds the epoch of the last launch. Epoch 0 is never used: the
    // workspace is 0 at first. The warp barrier keeps this load ahead of the loads of the tiles, so that its
    // latency is hidden.
    const Slot last(workspace[0]);
    const unsigned before = (unsigned)last.load(cuda::std::memory_order_relaxed);
    __syncwarp();
    const Word epoch = before + 1 ? before + 1 : 1;

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: one partial per block; block 0 reduces them in the order of blocks and writes the result.
    if (blockIdx.x > 0) {
        if (tid == 0)
            ll_store(workspace + blockIdx.x * WORDS, epoch, value);
        return;
    }
    if (tid > 0)
        value = Op::identity();
    for (unsigned k = tid > 0 ? tid : BLOCK; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, ll_poll(workspace + k * WORDS, epoch));
    __syncthreads();
    value = fold_block(value);
    if (tid == 0) {
        *out = Op::finish(value);
        last.store(epoch, cuda::std::memory_order_relaxed);
    }
}
