/*+++
title      = "Last of a group, last of the groups"
change     = "Blocks count their arrivals in groups of eight; a group's last block folds the group, the last group's block the groups."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride", "last_block"]
+++*/
// Right: both levels store, fence and count by one thread and fence again before reading; all counts wrap to
// 0 by themselves, that of the last group too, which may be smaller than the others.
constexpr unsigned GROUP = 8, GROUPS = 16;
__device__ Acc of_group[GROUPS];
__device__ unsigned group_arrivals[GROUPS];

__device__ Acc fold_block(Acc value)
{
    __shared__ Acc shared[BLOCK];
    __syncthreads();
    shared[threadIdx.x] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            shared[threadIdx.x] = Op::combine(shared[threadIdx.x], shared[threadIdx.x + stride]);
        __syncthreads();
    }
    return shared[0];
}

__device__ bool leave_and_count(Acc *place, Acc value, unsigned *count, unsigned expected)
{
    __shared__ bool last;
    if (threadIdx.x == 0) {
        *place = value;
        __threadfence();
        last = atomicInc(count, expected - 1) == expected - 1;
        __threadfence();
    }
    __syncthreads();
    const bool result = last;
    __syncthreads();
    return result;
}

extern "C" __global__ void reduce_two_level_last(const In *in, Out *out, size_t n, Acc *partials,
                                                 unsigned *counter)
{
    const unsigned tid = threadIdx.x, group = blockIdx.x / GROUP;
    const unsigned groups = (gridDim.x + GROUP - 1) / GROUP;
    const unsigned members = min(GROUP, gridDim.x - group * GROUP);

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(value);
    if (!leave_and_count(partials + blockIdx.x, value, group_arrivals + group, members))
        return;
    value = fold_block(tid < members ? __ldcg(partials + group * GROUP + tid) : Op::identity());
    if (!leave_and_count(of_group + group, value, counter, groups))
        return;
    value = fold_block(tid < groups ? __ldcg(of_group + tid) : Op::identity());
    if (tid == 0)
        *out = Op::finish(value);
}
