/*+++
title      = "All-reduce by writes"
change     = "A reduce-scatter by writes, whose sums are written to all ranks."
expect     = "2935 us instead of 3177 for two shots at 2^28 (two H100): no read over the links, no barrier before."
after      = "reduce_scatter_writes"
collective = "all-reduce"
block      = 512
blocks     = 128
mail       = "shares"
+++*/
// A rank that writes a sum to another rank's output has received a tile from that rank in this call, so that rank
// has started the call and its output is free. The barrier at the end waits until all sums have arrived.
extern "C" __global__ void __launch_bounds__(BLOCK) all_reduce_writes(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t flags, size_t mail, size_t call)
{
    fold_sent(ranks, in, packs, mail, call, [&](size_t p, Pack sum) {
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            ranks.at<Pack>(r, out)[p] = sum;
    });
    ranks.meet(flags, 2 * call + 1);
}
