/*+++
title      = "All-reduce in two shots"
change     = "Each rank reduces its slice and writes it to all: a reduce-scatter by reads, an all-gather by writes."
expect     = "2 (N - 1) / N of an array over the links instead of N - 1: the same for two GPUs, half for four."
after      = "reduce_scatter"
collective = "all-reduce"
block      = 512
+++*/
// Writes of one tile and reads of the next are in flight at the same time, so that only the barrier at the end
// separates the two shots. All ranks receive the sum of one rank, so their bits are equal in any order.
extern "C" __global__ void __launch_bounds__(BLOCK) all_reduce_two_shot(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    const size_t begin = packs * ranks.me / RANKS, end = packs * (ranks.me + 1) / RANKS;
    ranks.meet(flags, 2 * call);
    fold_tiles(ranks, in, begin, end, [&](size_t p, Pack sum) {
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            ranks.at<Pack>(r, out)[p] = sum;
    });
    ranks.meet(flags, 2 * call + 1);
}
