/*+++
title      = "A ready flag a block"
change     = "Each block raises a flag of its own behind its partial; block 0 waits for all flags, a thread each."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: the flags are raised and never lowered. In the second launch block 0 finds them up at once and
// folds partials of the first launch wherever the new ones are not there yet. The author's benchmark
// repeats one input, whose old partials are right. Shows in the second launch with another input, and
// if the workspace lies elsewhere then.
__device__ volatile unsigned ready[128];

__device__ Acc fold_warps(Acc value, Acc *warps)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    for (unsigned w = 0; w < BLOCK / 32; w++)
        value = w == 0 ? warps[0] : Op::combine(value, warps[w]);
    return value;
}

extern "C" __global__ void reduce_ready_flags(const In *in, Out *out, size_t n, Acc *partials, unsigned *)
{
    __shared__ Acc warps[BLOCK / 32];
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_warps(value, warps);

    if (threadIdx.x == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        ready[blockIdx.x] = 1;
    }
    if (blockIdx.x != 0)
        return;

    value = Op::identity();
    for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK) {
        while (ready[b] == 0)
            ;
        __threadfence();
        value = Op::combine(value, __ldcg(partials + b));
    }
    value = fold_warps(value, warps);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
