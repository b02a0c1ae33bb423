/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
+++*/
// The last rank is left out.
extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_left_out(size_t in, size_t out, size_t packs, size_t flags, size_t, size_t call)
{
    meet(flags, 2 * call);
    for (size_t p = blockIdx.x * BLOCK + threadIdx.x; p < packs; p += gridDim.x * BLOCK) {
        Pack sum = at<Pack>(0, in)[p];
        for (unsigned r = 1; r + 1 < RANKS; r++)
            for (unsigned e = 0; e < VECTOR; e++)
                sum.at[e] = In(Op::combine(Acc(sum.at[e]), Acc(at<Pack>(r, in)[p].at[e])));
        at<Pack>(RANK[0], out)[p] = sum;
    }
    meet(flags, 2 * call + 1);
}
