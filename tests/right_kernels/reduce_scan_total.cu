/*+++
title      = "One warp a row, total of an inclusive scan"
change     = "Each warp scans its row inclusively; the last lane's prefix is the row's total."
scope      = "warp"
grid       = "warp_per_row"
walk       = "lane"
finish     = "none"
block      = 128
blocks     = [32, 64, 96, 128, 256, 512, 1024]
techniques = ["shuffle"]
+++*/
// Right: lanes past the end of the row bring the identity, so the prefix of lane 31 is the total of the
// row for any n up to 32, n = 0 too; a warp without a row leaves as a whole before the scan.
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void reduce_scan_total(const In *in, Out *out, size_t n, size_t rows)
{
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const size_t row = (size_t)blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (row >= rows)
        return;
    const unsigned lane = warp.thread_rank();
    const Acc mine = lane < n ? Op::lift(in[row * n + lane], lane) : Op::identity();
    const Acc prefix =
        cg::inclusive_scan(warp, mine, [](Acc a, Acc b) { return Op::combine(a, b); });
    if (lane == warp.num_threads() - 1)
        out[row] = Op::finish(prefix);
}
