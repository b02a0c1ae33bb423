/*+++
title        = "Tiles of one block, element by element"
change       = "A thread loads elements instead of packs, so nothing is done about alignment and ends; one whole tile has none."
expect       = "A few hundredths sooner than packs: 4.02 us against 4.12 at 2^10 on an H100, 4.58 against 4.67 at 2^14; and 4.11 against 4.24 at 2^12 where that is a tile."
after        = "reduce_tiles_block"
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
// Where a launch takes four microseconds, reading its instructions from cold memory and working out what
// to load are part of what is measured. Packs must be told from the ends that no pack covers: some fifty
// instructions with a branch, before the first load. Elements need a bound alone, which is compared in
// 32 bits. Loads of 4 bytes keep the memory less busy than packs, and of so few bytes it is not.
// An input that is one aligned tile has neither ends nor bounds: four instructions load what took forty.
// Left out on purpose: what lies behind the last element is the identity, not a branch.
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

// A tree over what a tile's loads brought to this thread.
__device__ Acc fold_items(Acc (&item)[ITEMS])
{
#pragma unroll
    for (unsigned k = 1; k < ITEMS; k *= 2)
#pragma unroll
        for (unsigned i = 0; i + k < ITEMS; i += 2 * k)
            item[i] = Op::combine(item[i], item[i + k]);
    return item[0];
}

// What this thread takes of an input that is one aligned tile.
__device__ Acc load_whole(const Pack *in)
{
    Pack pack[ITEMS / VECTOR];
#pragma unroll
    for (unsigned l = 0; l < ITEMS / VECTOR; l++)
        pack[l] = in[threadIdx.x + l * BLOCK];
    Acc item[ITEMS];
#pragma unroll
    for (unsigned k = 0; k < ITEMS; k++) {
        const unsigned l = k / VECTOR, e = k % VECTOR;
        item[k] = Op::lift(pack[l].at[e], (threadIdx.x + l * BLOCK) * VECTOR + e);
    }
    return fold_items(item);
}

// What this thread takes of any input: all loads of a tile, then the next.
__device__ Acc load_tiles(const In *in, size_t n)
{
    constexpr unsigned TILE = ITEMS * BLOCK;
    Acc value = Op::identity();
    size_t tile = 0;
    do {
        const unsigned left = min(n - tile, (size_t)TILE);
        Acc item[ITEMS];
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned at = threadIdx.x + k * BLOCK;
            item[k] = at < left ? Op::lift(in[tile + at], tile + at) : Op::identity();
        }
        value = Op::combine(value, fold_items(item));
        tile += TILE;
    } while (tile < n);
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_scalar(const In *in, Out *out, size_t n)
{
    // Load and tree.
    const bool whole = n == ITEMS * BLOCK && (size_t)in % 16 == 0;
    const Acc value = fold_block(whole ? load_whole((const Pack *)in) : load_tiles(in, n));

    // Write: the one answer.
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
