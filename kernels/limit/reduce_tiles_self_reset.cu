/*+++
title        = "Tiles, one sum that clears itself"
change       = "Blocks add to one sum in memory; who counts last takes it and leaves 0 for the next launch."
expect       = "0.2 to 0.6 us less at every size (H200): no partials to be read again."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "self_reset"
workspace    = 16
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "atomic"]
ops          = ["sum"]
+++*/
// An answer that atomics add to must be set to 0 before, which is one more launch. Here the sum is in
// memory that outlives the launch and is 0 whenever none runs: the last block exchanges it for 0. The
// count releases what was added before it, and lets the last block see all of it. The price: blocks add
// as they come, so a float sum differs in its last bits from run to run, and only a 0 changes nothing.
#include <cuda/atomic>

struct Sum {
    alignas(8) Acc value;
    alignas(8) unsigned count;
};

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

// Blocks that an SM must have room for; 0 is what the compiler likes.
constexpr unsigned HELD = sizeof(In) == 2 ? SM_THREADS / BLOCK : 0;
extern "C" __global__ void __launch_bounds__(BLOCK, HELD)
reduce_tiles_self_reset(const In *in, Out *out, size_t n, Sum *workspace)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: one atomic a block; the last block to arrive takes the sum away.
    if (threadIdx.x == 0) {
        cuda::atomic_ref<Acc, cuda::thread_scope_device> sum(workspace->value);
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(workspace->count);
        sum.fetch_add(value, cuda::std::memory_order_relaxed);
        if (arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1) {
            *out = Op::finish(sum.exchange(0, cuda::std::memory_order_relaxed));
            arrivals.store(0, cuda::std::memory_order_relaxed);
        }
    }
}
