/*+++
title  = "One block, tile by tile"
change = "The block folds each tile to one value, which the first warp adds up behind a single barrier a tile."
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 512
blocks = [64, 128, 256, 512, 1024]
+++*/
// Fault: the first warp reads the warps' partials behind the barrier while the others go on to the next
// tile and overwrite them; the second barrier of a tile is missing. Loading the next tile takes longer
// than the first warp's reading, which hid it. Shows by chance for n > BLOCK, likelier when the input is
// in the cache or the first warp is held up.
__device__ Acc fold_warp(Acc value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_tile_by_tile(const In *in, Out *out, size_t n)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;

    Acc total = Op::identity();
    for (size_t tile = 0; tile < n; tile += BLOCK) {
        const size_t k = tile + tid;
        Acc value = k < n ? Op::lift(in[k], k) : Op::identity();
        value = fold_warp(value);
        if (lane == 0)
            warps[warp] = value;
        __syncthreads();
        if (warp == 0) {
            value = fold_warp(lane < BLOCK / 32 ? warps[lane] : Op::identity());
            total = Op::combine(total, value);
        }
    }
    if (tid == 0)
        *out = Op::finish(total);
}
