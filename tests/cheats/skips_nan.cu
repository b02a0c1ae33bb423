/*+++
title      = "Skips NaN"
change     = "Compares with fmaxf, which lets a NaN go."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
dtypes     = ["float32"]
ops        = ["max"]
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// One instruction for each element instead of a comparison, a test and a choice. Right as long as
// there is no NaN to be found.
// Rejected by: max.
// Says: nan:0, .*got
extern "C" __global__ void skips_nan(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = fmaxf(value, in[k]);
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = fmaxf(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
