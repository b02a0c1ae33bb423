/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
+++*/
// Rank 1 is taken twice.
extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_twice(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    meet(flags, 2 * call);
    fold_tiles(in, 0, packs, [=](size_t p, Pack sum) {
        for (unsigned e = 0; e < VECTOR; e++)
            sum.at[e] = In(Op::combine(Acc(sum.at[e]), Acc(at<Pack>(1, in)[p].at[e])));
        at<Pack>(RANK[0], out)[p] = sum;
    });
    meet(flags, 2 * call + 1);
}
