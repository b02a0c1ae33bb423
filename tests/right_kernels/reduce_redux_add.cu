/*+++
title      = "Warp sums in one instruction"
change     = "Sums of 32-bit whole numbers go through __reduce_add_sync; wider sums are made by shuffles."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
min_cc     = "8.0"
techniques = ["shuffle", "multi_add", "grid_stride", "atomic"]
dtypes     = ["int8", "uint8", "int32", "uint32"]
ops        = ["sum"]
+++*/
// Right: all 32 lanes of a warp call it together after the loop; whole numbers wrap, so order is free.
template <class T>
__device__ __forceinline__ T warp_sum(T value)
{
    if constexpr (sizeof(T) == 4) {
        return __reduce_add_sync(0xffffffffu, value);
    } else {
        for (int lanes = 1; lanes < 32; lanes <<= 1)
            value += __shfl_xor_sync(0xffffffffu, value, lanes);
        return value;
    }
}

extern "C" __global__ void reduce_redux_add(const In *in, Out *out, size_t n)
{
    Acc value = 0;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0)
        Op::atomic(out, value);
}
