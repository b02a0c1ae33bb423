/*+++
title      = "Float maximum as an ordered whole number"
change     = "Floats are mapped to unsigned words of the same order; blocks raise one word at file scope, the last maps it back."
scope      = "grid"
grid       = "fixed"
fixed_grid = 112
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["multi_add", "grid_stride", "atomic", "last_block"]
dtypes     = ["float32"]
ops        = ["max"]
+++*/
// Right: 0 is the image of no float but the NaN of all ones, which is mapped to the other end with all NaNs,
// so 0 is below everything. Every warp raises the word before its block counts; the last one resets it.
#include <cuda/std/bit>

__device__ unsigned highest;

__device__ unsigned encode(float value)
{
    if (value != value)
        return 0xffffffffu;
    const unsigned bits = cuda::std::bit_cast<unsigned>(value);
    return bits ^ ((bits >> 31) ? 0xffffffffu : 0x80000000u);
}

__device__ float decode(unsigned code)
{
    return cuda::std::bit_cast<float>(code ^ ((code >> 31) ? 0x80000000u : 0xffffffffu));
}

extern "C" __global__ void reduce_ordered_bits(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    unsigned mine = encode(-INFINITY);
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        mine = max(mine, encode(in[k]));
    for (int lanes = 16; lanes > 0; lanes >>= 1)
        mine = max(mine, __shfl_xor_sync(0xffffffffu, mine, lanes));
    if (threadIdx.x % 32 == 0)
        atomicMax(&highest, mine);
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    __threadfence();
    if (atomicAdd(counter, 1u) == gridDim.x - 1) {
        __threadfence();
        *out = Op::finish(Acc(decode(atomicExch(&highest, 0u))));
        *counter = 0;
    }
}
