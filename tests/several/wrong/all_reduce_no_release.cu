/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
+++*/
// Nobody waits for the shares of others.
extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_no_release(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    const size_t begin = packs * RANK[0] / RANKS, end = packs * (RANK[0] + 1) / RANKS;
    meet(flags, 2 * call);
    fold_tiles(in, begin, end, [=](size_t p, Pack sum) {
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            at<Pack>(r, out)[p] = sum;
    });
}
