/*+++
title        = "Tiles, warps reduced by one instruction"
change       = "One warp-wide instruction reduces the 32 values of a warp, and another one the partials of the warps."
expect       = "Two instructions instead of five shuffles and a loop; once per block, so the gain hardly shows."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
dtypes       = ["int32", "uint32", "int8", "uint8"]
ops          = ["sum", "min", "max"]
+++*/
// Since compute capability 8.0 one instruction reduces 32-bit integers over a warp and returns the result in
// all lanes; on older GPUs the same function uses shuffles. It adds, or takes the minimum or maximum. The
// compiler evaluates Op on two small constants to select the instruction. There is none for floating-point sums.
#include "tiles.cuh"
#include <cuda/atomic>

static_assert(sizeof(Acc) == 4, "the hardware folds 32-bit integers");

// Reduces one value per lane over the warp. All lanes return the result.
__device__ Acc fold_warp(Acc value)
{
#if __CUDA_ARCH__ >= 800
    if (Op::combine(1, 1) == 2)
        return __reduce_add_sync(0xffffffffu, value);
    return Op::combine(0, 1) == 0 ? __reduce_min_sync(0xffffffffu, value)
                                  : __reduce_max_sync(0xffffffffu, value);
#else
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
#endif
}

// Reduces one value per thread over the block. All threads return the result.
__device__ Acc redux_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const unsigned lane = threadIdx.x % 32;
    value = fold_warp(value);
    if (lane == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return fold_warp(lane < BLOCK / 32 ? of_warp[lane] : Op::identity());
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_redux(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Acc value = redux_block(load_tiles(in, n));

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value;
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
        if (is_last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, partials[k]);
    value = redux_block(value);
    if (tid == 0)
        *out = Op::finish(value);
}
