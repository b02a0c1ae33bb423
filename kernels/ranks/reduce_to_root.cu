/*+++
title      = "Reduce to rank 0"
change     = "Rank 0 alone reads all arrays; the others wait until theirs has been read."
expect     = "N - 1 arrays over one GPU's links: no quicker than an all-reduce, and its links are the only busy ones."
after      = "all_reduce_one_shot"
collective = "reduce"
block      = 512
+++*/
extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_to_root(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    const size_t end = RANK[0] == 0 ? packs : 0;
    meet(flags, 2 * call);
    fold_tiles(in, 0, end, [=](size_t p, Pack sum) { at<Pack>(0, out)[p] = sum; });
    meet(flags, 2 * call + 1);
}
