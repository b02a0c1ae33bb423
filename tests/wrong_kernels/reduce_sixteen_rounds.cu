/*+++
title      = "Sixteen rounds, unrolled"
change     = "The grid-stride loop makes 16 rounds at most and is unrolled, so that all its loads are in flight."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 128
blocks     = [128, 256, 512, 1024]
+++*/
// Fault: 16 rounds of a fixed grid cover 16 * 512 * BLOCK elements, and what lies behind is left out. At
// 128 threads that is 2^20, enough for the author's million. Shows for larger n alone.
extern "C" __global__ void reduce_sixteen_rounds(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t step = (size_t)gridDim.x * BLOCK;
    size_t k = (size_t)blockIdx.x * BLOCK + tid;

    Acc value = Op::identity();
#pragma unroll
    for (int round = 0; round < 16; round++, k += step)
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();

#pragma unroll
    for (unsigned stride = BLOCK / 2; stride >= 32; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid < 32) {
        value = shared[tid];
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
        if (tid == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
