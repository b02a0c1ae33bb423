/*+++
title      = "The group of the lanes that are here"
change     = "After the loop the lanes that arrive together form a group, which reduces itself and stores its sum for the warp."
scope      = "grid"
grid       = "fixed"
fixed_grid = 256
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 96, 128, 192, 256, 384, 512, 1024]
dtypes     = ["float32", "int32"]
ops        = ["sum"]
+++*/
// Fault: coalesced_threads() is whoever happens to be together. Behind a loop whose trip count differs
// from lane to lane the warp may come in two groups, and both store to the warp's one cell: the second
// overwrites the first. The author assumed that a warp is whole again behind a loop, which the compiler
// mostly but not always arranges. Shows by chance where lanes make unequal rounds: n no multiple of 32.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void sum_coalesced_group(const In *in, Out *out, size_t n)
{
    __shared__ Acc sums[BLOCK / 32];
    const cg::thread_block block = cg::this_thread_block();
    const unsigned warp = block.thread_rank() / 32;

    Acc sum = 0;
    const size_t step = (size_t)gridDim.x * BLOCK;
    for (size_t k = (size_t)blockIdx.x * BLOCK + block.thread_rank(); k < n; k += step)
        sum += in[k];

    const cg::coalesced_group here = cg::coalesced_threads();
    sum = cg::reduce(here, sum, cg::plus<Acc>());
    if (here.thread_rank() == 0)
        sums[warp] = sum;
    block.sync();

    if (block.thread_rank() == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            sum += sums[w];
        out[blockIdx.x] = sum;
    }
}
