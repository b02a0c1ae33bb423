/*+++
title      = "The sum of a neighbour by its address"
change     = "Thread 0 reads the other warps' results through pointers to their local variables."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: a local variable is addressable by its own thread only; the pointer means another variable, or
// none, in thread 0.
extern "C" __global__ void borrowed_local(const In *in, Out *out, size_t n)
{
    __shared__ const Acc *of_warp[BLOCK / 32];
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = &value;
    __syncthreads();
    Acc sum = value;
    if (threadIdx.x == 0)
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            sum = Op::combine(sum, *of_warp[warp]);  // <- hazard
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(sum);
}
