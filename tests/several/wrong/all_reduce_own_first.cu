/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
+++*/
// Each rank begins with its own array, so from three ranks on each has other bits.
extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_own_first(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    meet(flags, 2 * call);
    for (size_t p = blockIdx.x * BLOCK + threadIdx.x; p < packs; p += gridDim.x * BLOCK) {
        Pack sum = at<Pack>(RANK[0], in)[p];
        for (unsigned k = 1; k < RANKS; k++)
            for (unsigned e = 0; e < VECTOR; e++)
                sum.at[e] = In(Op::combine(Acc(sum.at[e]), Acc(at<Pack>((RANK[0] + k) % RANKS, in)[p].at[e])));
        at<Pack>(RANK[0], out)[p] = sum;
    }
    meet(flags, 2 * call + 1);
}
