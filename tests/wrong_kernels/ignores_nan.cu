/*+++
title      = "Ignores NaN"
change     = "The comparison lets a NaN on the right go."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: max.
extern "C" __global__ void ignores_nan(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = shared[tid] < shared[tid + stride] ? shared[tid + stride] : shared[tid];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
