/*+++
title        = "Tiles of a compensated sum"
change       = "Kahan-Neumaier: the exact error of each addition is summed separately and added at the end."
expect       = "Errors of one or two units in the last place of the block sums."
after        = "reduce_tiles_acq_rel"
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
fold         = "warps_then_serial"
finish       = "last_block"
items_bytes  = 64
vector_bytes = 16
block        = 512
blocks       = [32, 64, 128, 256, 512, 1024]
techniques   = ["no_divergence", "multi_add", "wide_load", "grid_stride", "shuffle", "last_block"]
dtypes       = ["float32", "float64", "float16", "bfloat16"]
ops          = ["sum"]
+++*/
// The rounding error of a floating-point addition is itself a float, and six additions compute it, whichever
// operand is larger (TwoSum; Knuth, The Art of Computer Programming, vol. 2, 4.2.2). As in Neumaier's variant of
// Kahan summation, errors are summed separately and added once, at the end of each block. A GPU that waits
// for memory has additions to spare.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };

struct Sum {
    Acc value = 0, error = 0;

    __device__ void add(Acc x)
    {
        const Acc sum = value + x, added = sum - value;
        error += (value - (sum - added)) + (x - added);
        value = sum;
    }
    // The errors of an infinite sum are NaN, so they are left out.
    __device__ Acc total() const { return value - value == 0 ? value + error : value; }
};

// Reduces one sum per thread over the block. Thread 0 returns the result.
__device__ Sum fold_block(Sum sum)
{
    __shared__ Acc of_warp[BLOCK / 32], error_of_warp[BLOCK / 32];
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
        sum.error += __shfl_down_sync(0xffffffffu, sum.error, lanes);
        sum.add(__shfl_down_sync(0xffffffffu, sum.value, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = sum.value;
        error_of_warp[threadIdx.x / 32] = sum.error;
    }
    __syncthreads();
    for (unsigned warp = 1; warp < BLOCK / 32; warp++) {
        sum.error += error_of_warp[warp];
        sum.add(of_warp[warp]);
    }
    return sum;
}

// Reduces the elements of this thread, as load_tiles in tiles.cuh does.
__device__ Sum load_tiles(const In *in, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const size_t end = threadIdx.x + (threadIdx.x < head ? 0 : packs * VECTOR);
    Sum value;
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value.add(Op::lift(in[end], end));
    for (size_t tile = (size_t)blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        Pack pack[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * BLOCK < packs)
                pack[l] = middle[first + l * BLOCK];
#pragma unroll
        for (unsigned k = 0; k < ITEMS; k++) {
            const unsigned l = k / VECTOR, e = k % VECTOR;
            const size_t p = first + l * BLOCK;
            if (p < packs)
                value.add(Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_tiles_compensated(const In *in, Out *out, size_t n, Acc *partials, unsigned *counter)
{
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;

    // Load and tree.
    Sum value = fold_block(load_tiles(in, n));

    // Write: one partial per block; the last block to arrive reduces them and writes the result.
    if (tid == 0) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(*counter);
        partials[blockIdx.x] = value.total();
        is_last = arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
        if (is_last)
            arrivals.store(0, cuda::std::memory_order_relaxed);
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Sum();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value.add(partials[k]);
    value = fold_block(value);
    if (tid == 0)
        *out = Op::finish(value.total());
}
