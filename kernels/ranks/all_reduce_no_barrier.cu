/*+++
title      = "All-reduce by remote reads, without a barrier"
change     = "Every GPU reads all arrays over the links and adds them in the order of ranks."
expect     = "Wrong: another rank's array may not be written yet, or may be overwritten while it is read."
collective = "all-reduce"
block      = 512
wrong      = "no rank waits until inputs are written, nor until they have been read"
+++*/
// The result is often right: if ranks start at the same time and inputs do not change, the race has no effect.
// This kernel is kept as an example that verification must reject, and for comparison with the next kernel.
extern "C" __global__ void __launch_bounds__(BLOCK) all_reduce_no_barrier(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t, size_t, size_t)
{
    fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) { ranks.here<Pack>(out)[p] = sum; });
}
