/*+++
title          = "Tiles through a ring of bulk copies"
change         = "The TMA unit of each SM copies tiles ahead into shared memory; one block per SM reduces them."
expect         = "Equal to tiles up to 2^28, 1 % faster at 2^30 (H200)."
after          = "reduce_tiles_acq_rel"
scope          = "grid"
grid           = "per_sm"
walk           = "grid_stride"
fold           = "warps_then_serial"
finish         = "last_block"
items_bytes    = 64
vector_bytes   = 16
block          = 512
blocks         = [32, 64, 128, 256, 512]
dynamic_shared = "384 bytes a thread"
min_cc         = "9.0"
requires       = ["tma"]
techniques     = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
+++*/
// A thread that loads into registers waits for its data before it can load more. A bulk copy (cp.async.bulk, by
// the TMA unit) needs no registers: one thread requests a whole tile, and a barrier in shared memory (mbarrier)
// counts its bytes as they arrive. STAGES tiles, up to 192 KiB per SM, are in flight at any time. When all threads
// have read a tile, its stage is requested for the tile STAGES later. The last block reads the elements that
// fill no whole tile without the ring.
#include "tiles.cuh"
#include <cuda/atomic>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK, STAGES = 24 / LOADS;
static_assert(STAGES > 0, "a tile must fit the ring");

// Requests a tile; the barrier `full` completes when all of its bytes have arrived.
__device__ void fetch(Pack *stage, const Pack *tile, cuda::std::uint64_t *full)
{
    constexpr unsigned BYTES = TILE * sizeof(Pack);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, full, BYTES);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage, tile, BYTES, full);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_ring(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    extern __shared__ Pack ring[];
    __shared__ cuda::std::uint64_t full[STAGES];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const unsigned tiles = packs / TILE;

    // Load: request the first STAGES tiles. Then reduce each tile and reuse its stage for another.
    if (tid == 0) {
        for (unsigned s = 0; s < STAGES; s++)
            ptx::mbarrier_init(&full[s], 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        for (unsigned s = 0, tile = blockIdx.x; s < STAGES && tile < tiles; s++, tile += gridDim.x)
            fetch(ring + s * TILE, middle + (size_t)tile * TILE, &full[s]);
    }
    __syncthreads();
    const bool rest = blockIdx.x == gridDim.x - 1;
    const size_t end = tid + (tid < head ? 0 : packs * VECTOR);
    Acc value = rest && end < n ? Op::lift(in[end], end) : Op::identity();
    for (size_t p = (size_t)tiles * TILE + tid; rest && p < packs; p += BLOCK)
        for (unsigned e = 0; e < VECTOR; e++)
            value = Op::combine(value, Op::lift(middle[p].at[e], head + p * VECTOR + e));
    // The stage, the parity of its barrier and this thread's address are carried along: an SM has a quarter of
    // a microsecond per tile. The parity changes each time a barrier completes, so it tells a tile from the one
    // STAGES before.
    const Pack *own = ring + tid;
    unsigned s = 0, parity = 0;
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        while (!ptx::mbarrier_try_wait_parity(&full[s], parity))
            ;
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            pack[l] = own[l * BLOCK];
        __syncthreads();
        const unsigned next = tile + STAGES * gridDim.x;
        if (tid == 0 && next < tiles)
            fetch(ring + s * TILE, middle + (size_t)next * TILE, &full[s]);
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned l = k / VECTOR, e = k % VECTOR;
            const size_t p = (size_t)tile * TILE + l * BLOCK + tid;
            value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
        s = s + 1 < STAGES ? s + 1 : 0;
        parity ^= s == 0;
        own = s == 0 ? ring + tid : own + TILE;
    }

    // Tree.
    value = fold_block(value);

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
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);
    value = fold_block(value);
    if (tid == 0)
        *out = Op::finish(value);
}
