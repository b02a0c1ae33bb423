/*+++
title      = "All-reduce by writes"
change     = "A reduce-scatter by writes, whose sums are written to all ranks at once."
expect     = "2935 us instead of 3177 for two shots at 2^28 (two H100): no read over the links, no barrier in front."
after      = "reduce_scatter_writes"
collective = "all-reduce"
block      = 512
blocks     = 128
mail       = "shares"
+++*/
// Who writes a sum to another rank's output has had a tile of it from there, in this call: so that rank has begun
// it, and its output is free. That all sums have come nobody has told: hence the barrier behind.
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
