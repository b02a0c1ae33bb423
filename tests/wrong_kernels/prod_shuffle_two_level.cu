/*+++
title      = "Sum or product, two shuffle levels"
change     = "Shuffles in each warp, one cell a warp, shuffles again in the first warp."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
block      = 1024
blocks     = [128, 256, 512, 1024]
ops        = ["sum", "prod"]
techniques = ["shuffle", "multi_add"]
+++*/
// Fault: lanes without a warp to stand for bring 0, a leftover of the sum that this began as. With 32
// warps no lane is without; a product in blocks of 512 threads or fewer is always 0.
template <class T>
__device__ T warp_fold(T v)
{
    for (unsigned offset = 16; offset > 0; offset >>= 1)
        v = Op::combine(v, __shfl_down_sync(0xffffffffu, v, offset));
    return v;
}

extern "C" __global__ void prod_shuffle_two_level(const In *in, Out *out, size_t n)
{
    __shared__ Acc sums[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    size_t k = (size_t)blockIdx.x * BLOCK * ITEMS + threadIdx.x;

    Acc v = Op::identity();
#pragma unroll
    for (unsigned j = 0; j < ITEMS; j++, k += BLOCK)
        if (k < n)
            v = Op::combine(v, Op::lift(in[k], k));

    v = warp_fold(v);
    if (lane == 0)
        sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < BLOCK / 32 ? sums[lane] : Acc(0);
        v = warp_fold(v);
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(v);
}
