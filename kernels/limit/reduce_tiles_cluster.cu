/*+++
title        = "Tiles of one cluster"
change       = "Eight blocks on neighbouring SMs take all tiles and meet in the shared memory of one of them."
expect       = "A prototype lost: 4.5 us at 2^12, where one block took 3.9; 5.6 at 2^18, where an atomic took 5.3 (H200)."
after        = "reduce_tiles_block"
scope        = "grid"
grid         = "cluster"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "cluster"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
min_cc       = "9.0"
requires     = ["cluster"]
+++*/
// Between what one block reads quickly and what keeps the whole GPU busy there might be room for some
// blocks whose partials never leave the chip. Blocks of a cluster run at the same time and write to each
// other's shared memory. But a cluster starts later than a block does, and its barrier takes longer than
// a count in the L2. It must have been waited for once before another block's memory is there to be written.
#include <cooperative_groups.h>

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

extern "C" __global__ void __cluster_dims__(8) __launch_bounds__(BLOCK)
reduce_tiles_cluster(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_block[8];
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: block 0 gets one partial a block, folds them and writes the answer.
    cluster.barrier_wait();
    if (threadIdx.x == 0)
        *cluster.map_shared_rank(&of_block[blockIdx.x], 0) = value;
    cluster.sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        for (unsigned block = 1; block < 8; block++)
            value = Op::combine(value, of_block[block]);
        *out = Op::finish(value);
    }
}
