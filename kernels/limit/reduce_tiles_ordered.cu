/*+++
title        = "Tiles in order"
change       = "Each warp reads a contiguous share and reduces its tiles in order by a transposed butterfly."
expect       = "For operators that do not commute, without a barrier until the end."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "warp_stream"
fold         = "warps_then_serial"
finish       = "last_block"
order        = "kept"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "shuffle", "last_block", "order_kept"]
+++*/
// The four packs of a lane are 512 bytes apart, with packs of other lanes between them. So lanes are combined
// first, neighbours before distant ones, the lower lane on the left. That is four trees at once: in each of
// two steps a lane passes on half of its trees and keeps the other half. This takes 3 + 3 shuffles for four
// packs instead of 20, and two more combine the four trees. The share of a warp is contiguous, so its
// tiles follow one another in order.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };

// Combines `kept` with the value `given` by the lane whose index differs in `bits`, the lower lane on the left.
__device__ Acc fold_lanes(Acc kept, Acc given, unsigned bits)
{
    const Acc got = __shfl_xor_sync(0xffffffffu, given, bits);
    return threadIdx.x & bits ? Op::combine(got, kept) : Op::combine(kept, got);
}

__device__ Acc fold_warp(Acc value)
{
    for (unsigned bits = 1; bits < 32; bits *= 2)
        value = fold_lanes(value, value, bits);
    return value;
}

__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

// Reduces the share of this thread's warp: contiguous packs. The first warp also takes the elements before the
// packs, the last warp those after them.
__device__ Acc load_share(const In *in, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * 32;
    static_assert((LOADS & (LOADS - 1)) == 0, "LOADS must be a power of two");
    const unsigned lane = threadIdx.x % 32;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const size_t warp = ((size_t)blockIdx.x * BLOCK + threadIdx.x) / 32, warps = gridDim.x * (BLOCK / 32);
    const size_t share = ((packs + TILE - 1) / TILE + warps - 1) / warps * TILE;
    const size_t stop = min((warp + 1) * share, packs), tail = head + packs * VECTOR;

    Acc value = Op::identity();
    if (warp == 0 && head > 0)
        value = fold_warp(lane < head ? Op::lift(in[lane], lane) : Op::identity());
    for (size_t first = warp * share; first < stop; first += TILE) {
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * 32 + lane < stop)
                pack[l] = middle[first + l * 32 + lane];
        Acc part[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++) {
            const size_t p = first + l * 32 + lane;
            part[l] = Op::identity();
            for (unsigned e = 0; e < VECTOR && p < stop; e++)
                part[l] = Op::combine(part[l], Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
        unsigned bits = 1;
#pragma unroll
        for (unsigned half = LOADS / 2; half > 0; half /= 2, bits *= 2)
            for (unsigned l = 0; l < half; l++) {
                const bool upper = lane & bits;
                const Acc low = part[l], high = part[l + half];
                part[l] = fold_lanes(upper ? high : low, upper ? low : high, bits);
            }
        for (; bits < 32; bits *= 2)
            part[0] = fold_lanes(part[0], part[0], bits);
        for (bits = LOADS / 2; bits > 0; bits /= 2)
            part[0] = fold_lanes(part[0], part[0], bits);
        value = Op::combine(value, part[0]);
    }
    if (warp == warps - 1 && tail < n)
        value = Op::combine(value, fold_warp(tail + lane < n ? Op::lift(in[tail + lane], tail + lane)
                                                             : Op::identity()));
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_ordered(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = fold_block(load_share(in, n));

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value;
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
        if (is_last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    const unsigned each = (gridDim.x + BLOCK - 1) / BLOCK;
    for (unsigned k = tid * each; k < min((tid + 1) * each, gridDim.x); k++)
        value = Op::combine(value, partials[k]);
    value = fold_block(fold_warp(value));
    if (tid == 0)
        *out = Op::finish(value);
}
