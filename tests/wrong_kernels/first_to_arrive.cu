/*+++
title      = "First to arrive"
change     = "Of the threads that hold the extremum the first to say so wins, not the one in front."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: argmin, argmax.
extern "C" __global__ void first_to_arrive(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    __shared__ int winner;
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;
    const Acc own = i < n ? Op::lift(in[i], i) : Op::identity();

    if (tid == 0)
        winner = -1;
    shared[tid] = own;
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    const Scalar best = shared[0].value;
    if (own.index >= 0 && (best != best ? own.index == shared[0].index : own.value == best))
        atomicCAS(&winner, -1, (int)tid);
    __syncthreads();

    if ((int)tid == winner)
        out[blockIdx.x] = Op::finish(own);
}
