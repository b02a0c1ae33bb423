/*+++
title      = "Kahan sums that survive infinities"
change     = "Each thread carries Kahan's correction along; once its sum is not finite the correction stays zero."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride", "last_block"]
dtypes     = ["float32", "float64", "float16", "bfloat16"]
ops        = ["sum"]
+++*/
// Right: nvcc does not reassociate, so the correction is not optimised away, and the guard keeps infinity
// minus infinity out of it, by which plain Kahan turns an infinite sum into NaN.
struct Kahan {
    Acc sum = 0, excess = 0;

    __device__ void add(Acc x)
    {
        const Acc corrected = x - excess, next = sum + corrected;
        excess = isfinite(next) ? (next - sum) - corrected : Acc(0);
        sum = next;
    }
};

__device__ void fold_block(Acc *shared)
{
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride)
            shared[threadIdx.x] += shared[threadIdx.x + stride];
    }
}

extern "C" __global__ void reduce_kahan_guarded(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    Kahan running;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        running.add(Op::lift(in[k], k));
    shared[tid] = running.sum;
    fold_block(shared);
    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    running = Kahan();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        running.add(__ldcg(partials + k));
    shared[tid] = running.sum;
    fold_block(shared);
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
