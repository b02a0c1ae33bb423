/*+++
title        = "Tiles of 16-byte loads"
change       = "A thread loads four packs of 16 bytes, all before the first addition; blocks take tiles in turn."
expect       = "36.8 us at 2^25 instead of 38.8, and 97.5 % of what a read-only kernel reaches at 2^28 (H200)."
after        = "reduce_fill"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "relaunch_one_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle"]
+++*/
// Memory is a microsecond away, so its speed is how many bytes are asked for at once. 16 bytes are the
// most that one load brings, whatever the element: 4 float32, 8 float16, 16 int8. A tile is what a block
// asks for at once, one contiguous piece. Packs begin at multiples of 16 bytes, the input perhaps not:
// the last block, which never has more tiles than others, takes the few elements before and behind.
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

// A launch fills each SM with 2048 threads, which leaves 32 registers each. The compiler does not know that,
// and of elements of 2 bytes it takes 40, so three of four blocks have room and the fourth runs behind
// them: to be told how many must fit helps. Where it finds 32 by itself it does worse if it is told.
constexpr unsigned HELD = sizeof(In) == 2 ? SM_THREADS / BLOCK : 0;
extern "C" __global__ void __launch_bounds__(BLOCK, HELD) reduce_tiles(const In *in, Out *out, size_t n)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: one partial a block.
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(value);
}
