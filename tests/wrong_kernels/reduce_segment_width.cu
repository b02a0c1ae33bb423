/*+++
title  = "Shuffles as wide as there are warps"
change = "The second level shuffles in segments as wide as the block has warps, and needs no identity in other lanes."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "relaunch"
block  = 256
blocks = [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
dtypes = ["float32", "float64", "int32", "uint32"]
ops    = ["sum", "min", "max"]
+++*/
// Fault: a shuffle's width must be a power of two. Blocks of 96, 192, 384 and 768 threads have 3, 6, 12
// and 24 warps: the width is invalid, the result undefined, and the halving offsets would drop the odd
// warps besides. The author generalised from 256. Shows with those BLOCKs alone.
extern "C" __global__ void reduce_segment_width(const In *in, Out *out, size_t n)
{
    constexpr unsigned count = BLOCK / 32;
    __shared__ Acc warps[count];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++)
        if (i + item * BLOCK < n)
            value = Op::combine(value, Op::lift(in[i + item * BLOCK], i + item * BLOCK));

    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (lane == 0)
        warps[warp] = value;
    __syncthreads();

    if (warp == 0) {
        value = warps[lane % count];
        for (unsigned offset = count / 2; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset, count));
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
