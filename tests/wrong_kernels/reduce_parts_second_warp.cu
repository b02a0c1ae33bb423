/*+++
title  = "Parts of rows, finished by the second warp"
change = "Rows are cut into parts; the warps' partials of a part are folded by the second warp."
scope  = "rows"
grid   = "cover"
walk   = "contiguous"
items  = 32
finish = "reshape"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: a block of 32 threads has no second warp, and then nobody writes the part's result. The author
// wanted the first warp free for the next launch's prologue and never ran blocks of one warp, which the
// list allows. Shows with BLOCK = 32 alone, on every input.
__device__ Acc fold_warp(Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_parts_second_warp(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t parts = gridDim.x / rows, row = blockIdx.x / parts, part = blockIdx.x % parts;
    const size_t length = (n + parts - 1) / parts, begin = part * length, end = min(begin + length, n);

    Acc value = Op::identity();
    for (size_t k = begin + threadIdx.x; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[row * n + k], k));
    value = fold_warp(value);
    if (lane == 0)
        warps[warp] = value;
    __syncthreads();

    if (warp == 1) {
        value = fold_warp(lane < BLOCK / 32 ? warps[lane] : Op::identity());
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
