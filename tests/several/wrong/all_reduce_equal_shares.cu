/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
+++*/
// The rest behind equal shares is nobody's.
extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_equal_shares(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    const size_t begin = packs / RANKS * RANK[0], end = packs / RANKS * (RANK[0] + 1);
    meet(flags, 2 * call);
    fold_tiles(in, begin, end, [=](size_t p, Pack sum) {
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            at<Pack>(r, out)[p] = sum;
    });
    meet(flags, 2 * call + 1);
}
