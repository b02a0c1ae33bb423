/*+++
title          = "Tiles through a ring, by tickets"
change         = "A producer warp draws tickets for tiles, so fast SMs take more; each load has its own accumulator."
expect         = "H100, 32 to 96 of 132 SMs: 95 to 98 % of read-only bandwidth, equal shares 87 to 94. H200: 75, shares 90."
after          = "reduce_tiles_ring"
scope          = "grid"
grid           = "per_sm"
walk           = "tickets"
fold           = "warps_then_serial"
finish         = "last_block"
items_bytes    = 64
vector_bytes   = 16
block          = 544
blocks         = [64, 96, 160, 288, 544]
dynamic_shared = "384 bytes a thread"
min_cc         = "9.0"
requires       = ["tma"]
techniques     = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
+++*/
// The memory system does not serve all SMs equally, and with equal shares the slowest SM decides. So only the
// first STAGES tiles of each block are fixed. From then on a producer warp draws tickets for TICKET tiles each
// (dynamic scheduling). A draw may take longer than a tile, so it is made two tiles ahead. Consumer warps wait
// neither for the draw nor for each other: through the barrier `empty` each warp signals that it has read a
// tile. Which block adds a tile varies from launch to launch, so the last bits of a float sum do too.
#include "tiles.cuh"
#include <cuda/atomic>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
constexpr unsigned CONSUMERS = BLOCK - 32, LOADS = ITEMS / VECTOR, TILE = LOADS * CONSUMERS;
constexpr unsigned STAGES = 24 / LOADS, TICKET = 2;
static_assert(STAGES > 0, "a tile must fit the ring");

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_ring_tickets(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    extern __shared__ Pack ring[];
    __shared__ cuda::std::uint64_t full[STAGES], empty[STAGES], tiles[STAGES];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);

    // Load: one lane of the last warp requests tiles until none are left; the other warps reduce them.
    if (tid < STAGES) {
        ptx::mbarrier_init(&full[tid], 1);
        ptx::mbarrier_init(&empty[tid], CONSUMERS / 32);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    const size_t end = tid + (tid < head ? 0 : packs * VECTOR);
    Acc value = blockIdx.x == gridDim.x - 1 && end < n ? Op::lift(in[end], end) : Op::identity();
    size_t next = blockIdx.x;
    unsigned i = 0, s = 0, drawn = tid == CONSUMERS ? atomicInc(&counter[1], 0x7fffffff) : 0;
    for (bool more = tid == CONSUMERS; more; s = ++i % STAGES) {
        Pack *stage = &ring[s * TILE];
        const size_t tile = min(next * TILE, packs), bytes = 16 * min(packs - tile, (size_t)TILE);
        while (!ptx::mbarrier_try_wait_parity(&empty[s], ~(i / STAGES) % 2))
            ;
        tiles[s] = tile;
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], bytes);
        more = bytes > 0;
        if (more)
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage, &middle[tile], bytes, &full[s]);
        next += i + 1 < STAGES ? gridDim.x : 1;
        if (i + 1 >= STAGES && (i + 1 - STAGES) % TICKET == 0) {
            next = (size_t)gridDim.x * STAGES + (size_t)drawn * TICKET;
            drawn = atomicInc(&counter[1], 0x7fffffff);
        }
    }
    for (size_t tile = tid < CONSUMERS ? 0 : packs; tile < packs; s = ++i % STAGES) {
        while (!ptx::mbarrier_try_wait_parity(&full[s], i / STAGES % 2))
            ;
        tile = tiles[s];
        Pack pack[LOADS];
        Acc sum[LOADS];
        for (unsigned l = 0; l < LOADS; l++)
            pack[l] = ring[s * TILE + l * CONSUMERS + tid];
        __syncwarp();
        if (tid % 32 == 0)
            ptx::mbarrier_arrive(&empty[s]);
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned l = k / VECTOR, e = k % VECTOR;
            const size_t p = tile + l * CONSUMERS + tid;
            const Acc item = p < packs ? Op::lift(pack[l].at[e], head + p * VECTOR + e) : Op::identity();
            sum[l] = e == 0 ? item : Op::combine(sum[l], item);
        }
        for (unsigned l = 1; l < LOADS; l++)
            sum[0] = Op::combine(sum[0], sum[l]);
        value = Op::combine(value, sum[0]);
    }

    // Tree.
    value = fold_block(value);

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value;
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
        if (is_last)
            counter[0] = counter[1] = 0;
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
