/*+++
title        = "Tiles in a reproducible order"
change       = "A fixed number of virtual warps adds: only its index decides when an element is added."
expect       = "The same bits for every block size, grid, alignment and GPU, at the speed of tiles in one launch."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "fixed_warps"
finish       = "last_block"
fixed_warps  = 4096
items_bytes  = 128
vector_bytes = 16
block        = 512
blocks       = [64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
dtypes       = ["float32", "float64", "float16", "bfloat16"]
ops          = ["sum", "prod", "mean"]
+++*/
// A float sum differs in its last bits if the order of additions does: with the grid, so with the GPU, and with
// the alignment of the input. Here tile t belongs to virtual warp t % FIXED_WARPS, and element k of a tile to
// slot k % WIDTH of that warp, whichever warps execute. If packs start `head` elements late, all slots of a
// lane are shifted by as many, and the last slots of the last lane take elements of the row of packs
// above. The cost is one partial per virtual warp instead of one per block.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };
constexpr unsigned LOADS = 8, WIDTH = 32 * VECTOR, TILE = LOADS * WIDTH;

__device__ Acc fold_warp(Acc value)
{
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
}

// Adds a tile of whole packs to the slots. `mine` is the first slot of this lane: packs start `head` elements
// late.
__device__ void add_packs(Acc (&slot)[VECTOR], const Pack *first, size_t tile, unsigned mine)
{
    Pack pack[LOADS], before;
    if (mine + VECTOR > WIDTH)
        before = first[-32];
#pragma unroll
    for (unsigned l = 0; l < LOADS; l++)
        pack[l] = first[l * 32];
#pragma unroll
    for (unsigned k = 0; k < LOADS * VECTOR; k++) {
        const unsigned l = k / VECTOR, e = k % VECTOR;
        const Pack &above = l > 0 ? pack[l - 1] : before;
        const In x = mine + e < WIDTH ? pack[l].at[e] : above.at[e];
        slot[e] = Op::combine(slot[e], Op::lift(x, tile + l * WIDTH + (mine + e) % WIDTH));
    }
}

// Reduces the elements of one virtual warp; at the ends of the input element by element. The final tree over
// slots halves the number of slots, which gives the same sum wherever the first slot is.
__device__ Acc load_tiles(const In *in, size_t n, unsigned warp)
{
    const unsigned lane = threadIdx.x % 32, head = (0 - (size_t)in) % 16 / sizeof(In);
    const Pack *middle = (const Pack *)(in + head);
    Acc slot[VECTOR];
    for (Acc &value : slot)
        value = Op::identity();
    for (size_t tile = (size_t)warp * TILE; tile < n; tile += (size_t)FIXED_WARPS * TILE)
        if (tile >= head && tile + TILE + head <= n)
            add_packs(slot, middle + tile / VECTOR + lane, tile, lane * VECTOR + head);
        else
            for (unsigned e = 0; e < VECTOR; e++)
                for (unsigned l = 0; l < LOADS; l++) {
                    const size_t index = tile + l * WIDTH + (lane * VECTOR + head + e) % WIDTH;
                    if (index < n)
                        slot[e] = Op::combine(slot[e], Op::lift(in[index], index));
                }
    for (Acc &value : slot)
        value = fold_warp(value);
    for (unsigned half = VECTOR / 2; half > 0; half /= 2)
        for (unsigned e = 0; e < half; e++)
            slot[e] = Op::combine(slot[e], slot[e + half]);
    return slot[0];
}

// With a bound of 1024 threads per SM the compiler has enough registers to issue all loads first.
extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
reduce_tiles_reproducible(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ Acc of_warp[32];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const unsigned count = min((n + TILE - 1) / TILE, (size_t)FIXED_WARPS);

    // Load and tree.
    for (unsigned w = blockIdx.x * (BLOCK / 32) + tid / 32; w < count; w += gridDim.x * (BLOCK / 32)) {
        const Acc value = load_tiles(in, n, w);
        if (tid % 32 == 0)
            partials[w] = value;
    }

    // Write: one partial per virtual warp; the last block to arrive reduces them as 32 virtual warps.
    __syncthreads();
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
        if (is_last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!is_last)
        return;
    for (unsigned w = tid / 32; w < 32; w += BLOCK / 32) {
        Acc value = Op::identity();
        for (unsigned k = w * 32 + tid % 32; k < count; k += 1024)
            value = Op::combine(value, partials[k]);
        value = fold_warp(value);
        if (tid % 32 == 0)
            of_warp[w] = value;
    }
    __syncthreads();
    const Acc value = fold_warp(of_warp[tid % 32]);
    if (tid == 0)
        *out = Op::finish(value);
}
