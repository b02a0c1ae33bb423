/*+++
title      = "Mailboxes with the parity of the launch"
change     = "A word says in its upper half whether an odd or an even launch has written it."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "mailbox"
workspace  = "8 bytes a block"
block      = 256
blocks     = [64, 128, 256, 512]
ops        = ["sum"]
dtypes     = ["float32"]
+++*/
// Fault: after a launch of fewer blocks the words of the launch before that have the same parity as the
// next launch, so block 0 may fold old partial results. Right while the grid never grows again.
#include <cuda/atomic>

using Word = unsigned long long;

__device__ unsigned launches;

__device__ Acc fold_block(Acc value)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    __syncthreads();
    cells[tid] = value;
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
    }
    __syncthreads();
    return cells[0];
}

extern "C" __global__ void workspace_parity(const In *in, Out *out, size_t n, Word *workspace)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const Word tag = 1 + (atomicAdd(&launches, 0) & 1);
    const Acc value = fold_block(i < n ? Op::lift(in[i], i) : Op::identity());
    if (blockIdx.x > 0) {
        if (threadIdx.x == 0)
            cuda::atomic_ref<Word, cuda::thread_scope_device>(workspace[blockIdx.x])
                .store(tag << 32 | __float_as_uint(value), cuda::std::memory_order_relaxed);
        return;
    }
    Acc sum = threadIdx.x == 0 ? value : Op::identity();
    for (unsigned k = threadIdx.x + 1; k < gridDim.x; k += BLOCK) {
        const cuda::atomic_ref<Word, cuda::thread_scope_device> box(workspace[k]);
        Word word = 0;
        while (word >> 32 != tag)
            word = box.load(cuda::std::memory_order_relaxed);
        sum = Op::combine(sum, __uint_as_float((unsigned)word));
    }
    sum = fold_block(sum);
    if (threadIdx.x == 0) {
        *out = Op::finish(sum);
        atomicAdd(&launches, 1);
    }
}
