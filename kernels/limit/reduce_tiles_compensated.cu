/*+++
title        = "Tiles of a compensated sum"
change       = "What an addition rounds away is computed exactly, added up beside the sum, and added to it at the end."
expect       = "Errors of a unit or two in the last place of the blocks' sums."
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
// The error of a floating-point addition is itself a float, and six additions find it, whichever operand
// is the larger (Knuth's TwoSum; The Art of Computer Programming, vol. 2, 4.2.2). Additions are what a
// GPU that waits for memory has to spare. Where a sum is infinite its errors are no numbers, so they are
// left out. Each block's sum is rounded once, when it is stored as a partial.
#include <cuda/atomic>

struct alignas(16) Pack { In at[VECTOR]; };

struct Sum {
    Acc value = 0, lost = 0;

    __device__ void add(Acc x)
    {
        const Acc sum = value + x, added = sum - value;
        lost += (value - (sum - added)) + (x - added);
        value = sum;
    }
    __device__ Acc total() const { return value - value == 0 ? value + lost : value; }
};

// Thread 0 gets the block's value.
__device__ Sum fold_block(Sum sum)
{
    __shared__ Acc of_warp[BLOCK / 32], lost_of_warp[BLOCK / 32];
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
        sum.lost += __shfl_down_sync(0xffffffffu, sum.lost, lanes);
        sum.add(__shfl_down_sync(0xffffffffu, sum.value, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = sum.value;
        lost_of_warp[threadIdx.x / 32] = sum.lost;
    }
    __syncthreads();
    for (unsigned warp = 1; warp < BLOCK / 32; warp++) {
        sum.lost += lost_of_warp[warp];
        sum.add(of_warp[warp]);
    }
    return sum;
}

// What this thread takes of the input: of the ends one element, and packs of tiles.
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

    // Write: one partial a block; the last block to arrive folds them and writes the answer.
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
