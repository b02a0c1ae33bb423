/*+++
title      = "Second level as wide as there are warps"
change     = "The second level of shuffles takes log2(warps) steps of that width, and not always five."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 512
blocks     = [32, 64, 96, 128, 192, 224, 256, 384, 512, 640, 1024]
techniques = ["shuffle", "multi_add"]
+++*/
// Fault: a shuffle's width must be a power of two, and halving needs one as well. With 3, 6, 7, 12 or 20
// warps the result is undefined, and warps are left out.
extern "C" __global__ void shuffle_width_warps(const In *in, Out *out, size_t n)
{
    constexpr int WARPS = BLOCK / 32;
    __shared__ Acc cells[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    Acc value = Op::identity();
#pragma unroll 4
    for (long long k = threadIdx.x; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (lane == 0)
        cells[warp] = value;
    __syncthreads();

    if (warp == 0) {
        value = lane < WARPS ? cells[lane] : Op::identity();
#pragma unroll
        for (int d = WARPS / 2; d > 0; d /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d, WARPS));
        if (lane == 0)
            *out = Op::finish(value);
    }
}
