/*+++
title      = "All-reduce by remote reads, without a barrier"
change     = "Every GPU reads all arrays over the links and adds them in the order of ranks."
expect     = "Wrong: nobody knows whether another rank's array is there yet, or is being replaced."
collective = "all-reduce"
block      = 512
wrong      = "nobody waits for another rank's input, nor until it has been read"
+++*/
// It is often right: where ranks begin at the same time and inputs do not change, nobody notices. That
// is how such kernels get into programs. Kept to be rejected, and to be compared with the next step.
extern "C" __global__ void __launch_bounds__(BLOCK) all_reduce_no_barrier(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t, size_t, size_t)
{
    fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) { ranks.here<Pack>(out)[p] = sum; });
}
