/*+++
title      = "Exclusive scans with a carry"
change     = "Each warp runs through its part by exclusive scans, the way a stream compaction counts offsets, and keeps the carry."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "atomic"
block      = 128
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "atomic", "multi_add"]
dtypes     = ["int32", "uint32", "int64", "uint64"]
ops        = ["sum"]
+++*/
// Right: the offset of lane 31 and its own element are all that a round brought; whole numbers wrap, so
// neither the carry's order nor that of the atomics can be told from the answer.
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void reduce_exclusive_carry(const In *__restrict__ in, Out *__restrict__ out,
                                                  size_t n)
{
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const size_t of_block = (size_t)blockIdx.x * BLOCK * ITEMS;
    const size_t begin = of_block + (size_t)warp.meta_group_rank() * 32 * ITEMS;
    Acc carry = 0;
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * 32 + warp.thread_rank();
        const Acc own = k < n ? Op::lift(in[k], k) : Acc(0);
        const Acc offset = carry + cg::exclusive_scan(warp, own, cg::plus<Acc>());
        carry = warp.shfl(offset + own, 31);
    }
    if (warp.thread_rank() == 31 && carry != 0)
        Op::atomic(out, carry);
}
