/*+++
title      = "Labeled partitions of a warp"
change     = "Lanes are labeled by their rank modulo 3; each label's group reduces itself and files one value."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: each of the three labels occurs in every warp, so all 3 * BLOCK / 32 cells are written before
// the barrier, each by the first member of just one group of 11, 11 or 10 lanes.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

struct Combine {
    __device__ Acc operator()(const Acc &a, const Acc &b) const { return Op::combine(a, b); }
};

extern "C" __global__ void reduce_labeled_lanes(const In *in, Out *out, size_t n)
{
    constexpr unsigned LABELS = 3, CELLS = LABELS * (BLOCK / 32);
    __shared__ Acc cells[CELLS];
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const size_t begin = (size_t)blockIdx.x * BLOCK * ITEMS;

    Acc value = Op::identity();
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * BLOCK + threadIdx.x;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }

    const unsigned label = warp.thread_rank() % LABELS;
    const auto group = cg::labeled_partition(warp, label);
    value = cg::reduce(group, value, Combine{});
    if (group.thread_rank() == 0)
        cells[warp.meta_group_rank() * LABELS + label] = value;
    __syncthreads();

    if (warp.meta_group_rank() == 0) {
        value = Op::identity();
        for (unsigned k = warp.thread_rank(); k < CELLS; k += 32)
            value = Op::combine(value, cells[k]);
        value = cg::reduce(warp, value, Combine{});
        if (warp.thread_rank() == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
