/*+++
title      = "Number of blocks kept from the first launch"
change     = "The first launch notes how many blocks there are, and all count up to that."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "self_reset"
workspace  = 24
block      = 256
blocks     = [64, 128, 256, 512]
ops        = ["sum"]
dtypes     = ["float32"]
+++*/
// Fault: a launch of another size has another number of blocks. Right as long as sizes do not change, and
// wherever each size has a workspace of its own.
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

extern "C" __global__ void workspace_first_grid(const In *in, Out *out, size_t n, Sum *workspace)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const Acc value = fold_block(i < n ? Op::lift(in[i], i) : Op::identity());
    if (threadIdx.x > 0)
        return;
    atomicCAS(&workspace->blocks, 0u, gridDim.x);
    const unsigned blocks = atomicAdd(&workspace->blocks, 0u);
    cuda::atomic_ref<Acc, cuda::thread_scope_device> sum(workspace->value);
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrivals(workspace->count);
    sum.fetch_add(value, cuda::std::memory_order_relaxed);
    if (arrivals.fetch_add(1, cuda::std::memory_order_acq_rel) == blocks - 1) {
        *out = Op::finish(sum.exchange(0, cuda::std::memory_order_relaxed));
        arrivals.store(0, cuda::std::memory_order_relaxed);
    }
}
