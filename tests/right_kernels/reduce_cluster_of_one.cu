/*+++
title      = "Cluster of one block"
change     = "Written for clusters: each block reads the cells of block 0 of its cluster through distributed shared memory."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 256
blocks     = [64, 128, 256, 512]
min_cc     = "9.0"
requires   = ["cluster"]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: the cluster has one block, so any grid is a multiple of it, the mapped address is the block's
// own shared memory, and cluster.sync() is a barrier of this block's threads; needs cc 9.0.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(1, 1, 1)
reduce_cluster_of_one(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc cells[BLOCK / 32];
    const cg::cluster_group cluster = cg::this_cluster();
    Acc *home = cluster.map_shared_rank(cells, 0);
    const In *row = in + blockIdx.x * n;

    Acc value = Op::identity();
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    for (unsigned offset = 16; offset > 0; offset >>= 1)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        home[threadIdx.x / 32] = value;
    cluster.sync();

    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        value = home[0];
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            value = Op::combine(value, home[warp]);
        out[blockIdx.x] = Op::finish(value);
    }
    cluster.sync();
}
