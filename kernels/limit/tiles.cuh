// Device functions that the kernels of this folder share.
#pragma once

// One 16-byte load, the widest that a thread can issue.
struct alignas(16) Pack { In at[VECTOR]; };

// Blocks that an SM must have room for, the second argument of __launch_bounds__: see reduce_tiles. 0 leaves
// the number of registers to the compiler.
constexpr unsigned MIN_BLOCKS = sizeof(In) == 2 ? SM_THREADS / BLOCK : 0;

// Reduces one value per thread over the block. Thread 0 returns the result.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc of_warp[BLOCK / 32];
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, lanes));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    return value;
}

// Reduces the elements of this thread, as reduce_tiles does: the grid strides over tiles of LOADS packs per
// thread. A thread issues all loads of a tile before it adds the first element. The last block also takes the
// elements before and after the packs.
__device__ Acc load_tiles(const In *in, size_t n)
{
    constexpr unsigned LOADS = ITEMS / VECTOR, TILE = LOADS * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);
    const size_t end = threadIdx.x + (threadIdx.x < head ? 0 : packs * VECTOR);
    Acc value = Op::identity();
    if (blockIdx.x == gridDim.x - 1 && end < n)
        value = Op::lift(in[end], end);
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
                value = Op::combine(value, Op::lift(pack[l].at[e], head + p * VECTOR + e));
        }
    }
    return value;
}
