/*+++
title      = "Sum that is not cleared"
change     = "The last block takes the sum and clears the count alone."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "self_reset"
workspace  = 16
block      = 256
blocks     = [64, 128, 256, 512]
ops        = ["sum"]
dtypes     = ["float32"]
+++*/
// Fault: the sum stays in the workspace, so the next launch adds to it. The first answer is right.
// Rejected by: sum.
#include <cuda/atomic>

struct Sum {
    alignas(8) Acc value;
    alignas(8) unsigned count;
    unsigned blocks;
};

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

extern "C" __global__ void workspace_not_cleared(const In *in, Out *out, size_t n, Sum *workspace)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const Acc value = fold_block(i < n ? Op::lift(in[i], i) : Op::identity());
    if (threadIdx.x > 0)
        return;
    cuda::atomic_ref<Acc, cuda::thread_scope_device> sum(workspace->value);
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(workspace->count);
    sum.fetch_add(value, cuda::std::memory_order_relaxed);
    if (arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1) {
        *out = Op::finish(sum.load(cuda::std::memory_order_relaxed));
        arrivals.store(0, cuda::std::memory_order_relaxed);
    }
}
