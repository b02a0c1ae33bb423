/*+++
title      = "Mailboxes without an epoch"
change     = "A word says that it is there by its upper half, which is 1 in every launch."
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
// Fault: the words of the launch before are there, too, so block 0 folds old partials unless all blocks
// happen to be done. On memory that is 0 the first launch is right.
// Rejected by: schedule.
#include <cuda/atomic>

using Word = unsigned long long;

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
    return cells[0];
}

extern "C" __global__ void workspace_mail_without_date(const In *in, Out *out, size_t n, Word *workspace)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const Acc value = fold_block(i < n ? Op::lift(in[i], i) : Op::identity());
    if (blockIdx.x > 0) {
        if (threadIdx.x == 0)
            cuda::atomic_ref<Word, cuda::thread_scope_device>(workspace[blockIdx.x])
                .store(1ull << 32 | __float_as_uint(value), cuda::std::memory_order_relaxed);
        return;
    }
    Acc sum = threadIdx.x == 0 ? value : Op::identity();
    for (unsigned k = threadIdx.x + 1; k < gridDim.x; k += BLOCK) {
        const cuda::atomic_ref<Word, cuda::thread_scope_device> box(workspace[k]);
        Word word = 0;
        while (word >> 32 != 1)
            word = box.load(cuda::std::memory_order_relaxed);
        sum = Op::combine(sum, __uint_as_float((unsigned)word));
    }
    sum = fold_block(sum);
    if (threadIdx.x == 0)
        *out = Op::finish(sum);
}
