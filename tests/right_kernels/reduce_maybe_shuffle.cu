/*+++
title      = "Shuffles of a struct, without an identity"
change     = "Lanes exchange a struct of a value and how many elements it stands for; an empty one is passed over, not combined."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 128
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: every lane of the warp takes part in each shuffle, full or empty, and only what it does with the
// value depends on the count; a row without elements ends with an empty struct and so with the identity.
struct Maybe {
    Acc value;
    unsigned long long count;

    __device__ Maybe from_below(unsigned lanes) const
    {
        return {__shfl_down_sync(0xffffffffu, value, lanes), __shfl_down_sync(0xffffffffu, count, lanes)};
    }
    __device__ void take(const Maybe &other)
    {
        if (other.count == 0)
            return;
        value = count == 0 ? other.value : Op::combine(value, other.value);
        count += other.count;
    }
};

__device__ Maybe fold_warp(Maybe mine)
{
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
        const Maybe other = mine.from_below(lanes);
        if (threadIdx.x % 32 + lanes < 32)
            mine.take(other);
    }
    return mine;
}

extern "C" __global__ void reduce_maybe_shuffle(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Maybe of_warp[32];
    const unsigned tid = threadIdx.x;
    const In *row = in + blockIdx.x * n;
    Maybe mine = {Op::identity(), 0};
    for (size_t k = tid; k < n; k += BLOCK)
        mine.take({Op::lift(row[k], k), 1});
    mine = fold_warp(mine);
    if (tid % 32 == 0)
        of_warp[tid / 32] = mine;
    __syncthreads();
    if (tid >= 32)
        return;
    mine = {Op::identity(), 0};
    if (tid < BLOCK / 32)
        mine = of_warp[tid];
    mine = fold_warp(mine);
    if (tid == 0)
        out[blockIdx.x] = Op::finish(mine.value);
}
