/*+++
title      = "Neumaier sums, lost parts kept apart"
change     = "Sum and lost low parts travel as a pair through threads, shuffles and warps, and meet only in the answer."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 512
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "multi_add"]
dtypes     = ["float32", "float64", "float16", "bfloat16"]
ops        = ["sum", "mean"]
+++*/
// Right: the sum itself never takes in the lost parts, so infinities and NaNs show in it as in a plain sum;
// only to a finite sum the lost parts are added at the end.
struct Pair {
    Acc sum, lost;
};

__device__ Pair add(Pair a, Acc x)
{
    const Acc sum = a.sum + x;
    a.lost += fabs(a.sum) >= fabs(x) ? (a.sum - sum) + x : (x - sum) + a.sum;
    a.sum = sum;
    return a;
}

__device__ Pair join(Pair a, Pair b)
{
    a = add(a, b.sum);
    a.lost += b.lost;
    return a;
}

__device__ Pair join_warp(Pair mine)
{
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
        const Pair other = {__shfl_down_sync(0xffffffffu, mine.sum, lanes),
                            __shfl_down_sync(0xffffffffu, mine.lost, lanes)};
        mine = join(mine, other);
    }
    return mine;
}

extern "C" __global__ void reduce_neumaier_block(const In *in, Out *out, size_t n)
{
    __shared__ Pair of_warp[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Pair mine = {Acc(0), Acc(0)};
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        mine = add(mine, Op::lift(in[k], k));
    mine = join_warp(mine);
    if (lane == 0)
        of_warp[warp] = mine;
    __syncthreads();
    if (warp > 0)
        return;
    mine = lane < BLOCK / 32 ? of_warp[lane] : Pair{Acc(0), Acc(0)};
    mine = join_warp(mine);
    if (lane == 0)
        *out = Op::finish(isfinite(mine.sum) ? mine.sum + mine.lost : mine.sum);
}
