/*+++
title      = "Warps take turns by a semaphore"
change     = "Each warp's first lane combines its partial into one shared cell while it holds a binary semaphore."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 160, 256, 384, 512, 1024]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: one lane a warp takes the semaphore, so no lane spins beside its holder in a warp; acquire and
// release order the cell's reads and writes, and any order of warps is as good as another.
#include <cuda/semaphore>
#include <new>

using Lock = cuda::binary_semaphore<cuda::thread_scope_block>;

extern "C" __global__ void reduce_shared_semaphore(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ alignas(Lock) unsigned char storage[sizeof(Lock)];
    __shared__ Acc total;
    Lock &lock = *reinterpret_cast<Lock *>(storage);
    if (threadIdx.x == 0) {
        new (storage) Lock(1);
        total = Op::identity();
    }
    __syncthreads();

    const In *row = in + (size_t)blockIdx.x * n;
    Acc value = Op::identity();
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));

    if (threadIdx.x % 32 == 0) {
        lock.acquire();
        total = Op::combine(total, value);
        lock.release();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(total);
}
