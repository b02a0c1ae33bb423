/*+++
title        = "Tiles, a float sum and its count in one atomic of two"
change       = "One atomic of a float2 adds a block's sum and its arrival."
after        = "reduce_tiles_one_word"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "self_reset"
workspace    = 8
items_bytes  = 16
vector_bytes = 16
block        = 64
blocks       = [64, 128, 256]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "atomic"]
dtypes       = ["float32", "float16", "bfloat16"]
ops          = ["sum"]
min_cc       = "9.0"
+++*/
// Fault: from compute capability 9.0 on an atomic adds two floats at once, so a sum and a count could go
// together as whole numbers do in one word. But each of the two is added as a whole, not both: a block
// may find all others counted whose sums are not yet in. An H200 never showed it, and no promise says so.
// `verify` finds it at another block size.
static_assert(sizeof(Acc) == 4, "a sum and a count are two floats");

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
workspace_float_pair(const In *in, Out *out, size_t n, float2 *workspace)
{
    // Load and tree.
    const Acc value = fold_block(load_tiles(in, n));

    // Write: one atomic a block; the last block to arrive has the sum, and clears both.
    if (threadIdx.x == 0) {
        const float2 before = atomicAdd(workspace, make_float2(value, 1));
        if (before.y == gridDim.x - 1) {
            *out = Op::finish(before.x + value);
            atomicExch(&workspace->x, 0.0f);
            atomicExch(&workspace->y, 0.0f);
        }
    }
}
