/*+++
title        = "Tiles of one block"
change       = "One block takes all tiles, so there are no partials and nothing to finish."
expect       = "One launch and no finish, for some ten thousand elements; beyond, one SM reads what all could."
after        = "reduce_tiles"
scope        = "block"
grid         = "one"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "none"
items_bytes  = 64
vector_bytes = 16
block        = 1024
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
+++*/
// A small input takes no longer to read than a launch takes to begin and end: 1024 threads with four
// packs each ask for 64 KiB at once. What a finish costs in any of its ways is then a fifth of the
// whole, and one block has none. For some hundred elements fewer threads do as well (--block 256).
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

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_block(const In *in, Out *out, size_t n)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: the one answer.
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
