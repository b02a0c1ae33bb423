/*+++
title        = "One block a row, four loads in front"
change       = "A block takes a row by packs of 16 bytes, four a thread before the first addition."
expect       = "For rows of some ten thousand elements and more, where a warp alone has too few loads under way."
after        = "reduce_rows_warp"
scope        = "rows"
grid         = "block_per_row"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "none"
items_bytes  = 64
vector_bytes = 16
block        = 256
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle"]
+++*/
// A warp reads a long row in many turns, and where rows are few its SM has little else to do. A block of
// 256 threads asks for 16 KiB of a row at once, and 8 such blocks on an SM for all that it can hold. For
// rows that are fewer than SMs hold blocks, each would have to be shared out: see reduce_reshape.
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

// Blocks that an SM must have room for; 0 is what the compiler likes.
constexpr unsigned HELD = sizeof(In) == 2 ? SM_THREADS / BLOCK : 0;
extern "C" __global__ void __launch_bounds__(BLOCK, HELD)
reduce_rows_block(const In *in, Out *out, size_t n, size_t rows)
{
    constexpr unsigned LOADS = ITEMS / VECTOR;
    const unsigned tid = threadIdx.x;
    const In *row = in + blockIdx.x * n;
    const size_t head = min((0 - (size_t)row) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(row + head);

    // Load: of the ends one element, then packs.
    const size_t end = tid + (tid < head ? 0 : packs * VECTOR);
    Acc value = end < n ? Op::lift(row[end], end) : Op::identity();
    for (size_t first = tid; first < packs; first += LOADS * BLOCK) {
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

    // Tree.
    value = fold_block(value);

    // Write: one answer a block.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
