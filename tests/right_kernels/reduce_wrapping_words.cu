/*+++
title      = "Signed sums in unsigned words"
change     = "Signed elements are added as unsigned words of the accumulator's width, where overflow is defined, and turned back at the end."
scope      = "grid"
grid       = "fixed"
fixed_grid = 88
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 96, 128, 192, 256, 384, 512, 1024]
techniques = ["shuffle", "multi_add", "grid_stride"]
dtypes     = ["int8", "int32", "int64"]
ops        = ["sum"]
+++*/
// Right: two's complement addition has the same bits with and without a sign, and a narrow element is widened
// with its sign before it becomes unsigned.
#include <cuda/std/type_traits>

using Word = cuda::std::make_unsigned_t<Acc>;

__device__ Word fold_warp(Word word)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        word += __shfl_down_sync(0xffffffffu, word, offset);
    return word;
}

extern "C" __global__ void reduce_wrapping_words(const In *in, Out *out, size_t n)
{
    __shared__ Word of_warp[32];
    const unsigned lane = threadIdx.x % 32;
    Word sum = 0;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        sum += static_cast<Word>(static_cast<Acc>(in[k]));
    sum = fold_warp(sum);
    if (lane == 0)
        of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = fold_warp(lane < BLOCK / 32 ? of_warp[lane] : 0);
        if (lane == 0)
            out[blockIdx.x] = static_cast<Acc>(sum);
    }
}
