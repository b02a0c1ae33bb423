/*+++
title        = "Tiles of one cluster"
change       = "Eight blocks on neighbouring SMs read all tiles; partials meet in the shared memory of one of them."
expect       = "Slower in a prototype: 4.5 us at 2^12 against 3.9 for one block, 5.6 at 2^18 against 5.3 with an atomic (H200)."
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
// Between the sizes that one block reads fast and those that fill the GPU, a few blocks could keep their
// partials on the chip. The blocks of a cluster run at the same time and can write to each other's shared
// memory. But a cluster starts later than a block, and its barrier takes longer than a count in the L2.
#include "tiles.cuh"
#include <cooperative_groups.h>

extern "C" __global__ void __cluster_dims__(8) __launch_bounds__(BLOCK)
reduce_tiles_cluster(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_block[8];
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();

    // Load and tree.
    Acc value = fold_block(load_tiles(in, n));

    // Write: block 0 receives one partial per block, reduces them and writes the result. The first barrier
    // ensures that block 0 has started: before that its shared memory must not be written.
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
