/*+++
title      = "Missing __syncwarp"
change     = "The last warp trusts lockstep, as code from before Volta did."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: schedule, hazard.
extern "C" __global__ void missing_syncwarp(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid < 32) {
        volatile Acc *cells = shared;
        for (unsigned stride = 32; stride > 0; stride /= 2)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);  // <- hazard
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
