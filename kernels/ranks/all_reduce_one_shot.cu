/*+++
title      = "All-reduce in one shot"
change     = "A barrier in front: all inputs are there. A barrier behind: nobody reads mine any more."
expect     = "Two flags' way more, some 3 us of 9 on two H200, and the right answer."
after      = "all_reduce_no_barrier"
collective = "all-reduce"
block      = 512
+++*/
// Block b waits for the blocks b of the other ranks, not for their whole grids: each block begins as soon
// as those that wrote beside it have ended. Its price: every GPU reads all arrays, so of N ranks N - 1
// arrays come in over its links, where two shots need 2 (N - 1) / N.
extern "C" __global__ void __launch_bounds__(BLOCK) all_reduce_one_shot(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    ranks.meet(flags, 2 * call);
    fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) { ranks.here<Pack>(out)[p] = sum; });
    ranks.meet(flags, 2 * call + 1);
}
