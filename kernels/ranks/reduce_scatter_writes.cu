/*+++
title      = "Reduce-scatter by writes"
change     = "Nothing is read over the links: what another's share needs is written to a box there, tile by tile."
expect     = "1473 us instead of 1601 at 2^28 (two H100): links carry 365 GB/s of writes both ways, and 338 of reads."
after      = "reduce_scatter"
collective = "reduce-scatter"
block      = 1024
blocks     = 128
mail       = "shares"
+++*/
// A read over a link is a request and an answer, a write goes one way, and what is written waits for nobody:
// there is no barrier. Its price is memory: boxes for two calls, each as large as the array, written and read
// once more; and blocks, as those who add must not keep those who send from sending. Below some 10 MiB to
// send, a barrier and reads are as fast.
extern "C" __global__ void __launch_bounds__(BLOCK) reduce_scatter_writes(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t, size_t mail, size_t call)
{
    fold_sent(ranks, in, packs, mail, call, [&](size_t p, Pack sum) { ranks.here<Pack>(out)[p] = sum; });
}
