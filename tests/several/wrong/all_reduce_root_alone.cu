/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
+++*/
// Rank 0 alone has the answer.
extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_root_alone(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    meet(flags, 2 * call);
    fold_tiles(in, 0, packs, [=](size_t p, Pack sum) { if (RANK[0] == 0) at<Pack>(0, out)[p] = sum; });
    meet(flags, 2 * call + 1);
}
