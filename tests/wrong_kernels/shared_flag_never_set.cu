/*+++
title      = "A flag that is only ever set"
change     = "A warp that has elements sets a flag; the fold skips warps without."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: nobody clears the flags of warps without elements, and whatever shared memory holds is read.
extern "C" __global__ void shared_flag_never_set(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    __shared__ unsigned has_some[BLOCK / 32];
    const unsigned warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0)
        of_warp[warp] = Op::identity();
    if ((size_t)blockIdx.x * BLOCK + warp * 32 < n && threadIdx.x % 32 == 0)
        has_some[warp] = 1;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        of_warp[warp] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned other = 1; other < BLOCK / 32; other++)
            if (has_some[other])  // <- hazard
                value = Op::combine(value, of_warp[other]);
        out[blockIdx.x] = Op::finish(value);
    }
}
