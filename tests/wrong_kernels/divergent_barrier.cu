/*+++
title      = "Barrier in a divergent branch"
change     = "Only the threads that work meet at the barrier."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: schedule, hazard.
extern "C" __global__ void divergent_barrier(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride) {
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();  // <- hazard
        }
    }
    __syncthreads();  // <- hazard

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
