/*+++
title      = "Reduce-scatter by writes"
change     = "No reads over the links: input for another rank's slice is written to slots there, tile by tile."
expect     = "1473 us instead of 1601 at 2^28 (two H100): links reach 365 GB/s by writes both ways, and 338 by reads."
after      = "reduce_scatter"
collective = "reduce-scatter"
block      = 1024
blocks     = 128
mail       = "shares"
+++*/
// A read over a link needs a request and a reply, a write only one message, and no barrier is needed before it. The
// costs are memory (slots for two calls, each as large as the array, which are written and read once more) and
// blocks, since separate blocks send and combine. Below about 10 MiB, a barrier and reads are as fast.
extern "C" __global__ void __launch_bounds__(BLOCK) reduce_scatter_writes(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t, size_t mail, size_t call)
{
    fold_sent(ranks, in, packs, mail, call, [&](size_t p, Pack sum) { ranks.here<Pack>(out)[p] = sum; });
}
