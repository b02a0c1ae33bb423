/*+++
title      = "Missing barrier after the load"
change     = "The tree starts before its neighbours have loaded."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: schedule, hazard.
extern "C" __global__ void missing_barrier_after_load(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);  // <- hazard
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
