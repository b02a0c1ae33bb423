/*+++
title      = "Reduce to rank 0"
change     = "Only rank 0 reads all arrays; the others wait until their array has been read."
expect     = "N - 1 arrays over the links of one GPU: no faster than an all-reduce, and all other links are idle."
after      = "all_reduce_one_shot"
collective = "reduce"
block      = 512
+++*/
extern "C" __global__ void __launch_bounds__(BLOCK) reduce_to_root(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    const size_t end = ranks.me == 0 ? packs : 0;
    ranks.meet(flags, 2 * call);
    fold_tiles(ranks, in, 0, end, [&](size_t p, Pack sum) { ranks.at<Pack>(0, out)[p] = sum; });
    ranks.meet(flags, 2 * call + 1);
}
