/*+++
title      = "A loop that counts in float"
change     = "Element numbers are floats, since the loop body once computed with them."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
ops        = ["sum"]
+++*/
// Fault: beyond 2^24 not every whole number is a float, so odd elements are never added and even ones twice.
extern "C" __global__ void float_loop_counter(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
    const float threads = gridDim.x * BLOCK;
    for (float k = blockIdx.x * BLOCK + tid; k < (float)n; k += threads)
        value = Op::combine(value, Op::lift(in[(size_t)k], (size_t)k));
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
