/*+++
title      = "Remembers NaN"
change     = "Compares with fmaxf, and remembers whether there was a NaN."
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
// Two instructions for each element, too; what is rare is decided once, behind the loop.
extern "C" __global__ void skips_nan(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    bool found = false;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK) {
        value = fmaxf(value, in[k]);
        found |= in[k] != in[k];
    }
    shared[tid] = found ? __int_as_float(0x7fffffff) : value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
