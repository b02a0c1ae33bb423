/*+++
title      = "Register budget by launch bounds"
change     = "The compiler is told the block size and asked for eight blocks an SM, which caps registers at 32."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["multi_add", "shuffle"]
+++*/
// Fault: a kernel with launch bounds of 256 threads cannot be launched with more; blocks of 512 and 1024,
// which the header admits, fail. The number was right until larger blocks were added.
extern "C" __global__ void __launch_bounds__(256, 8)
launch_bounds_256(const In *in, Out *out, size_t n)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned tid = threadIdx.x;
    const size_t tile = (size_t)blockIdx.x * (BLOCK * ITEMS);

    Acc value = Op::identity();
#pragma unroll
    for (unsigned j = 0; j < ITEMS; j++) {
        const size_t k = tile + j * BLOCK + tid;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    for (unsigned d = 16; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (tid % 32 == 0)
        warps[tid / 32] = value;
    __syncthreads();
    if (tid < 32) {
        value = tid < BLOCK / 32 ? warps[tid] : Op::identity();
        for (unsigned d = 16; d > 0; d /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
        if (tid == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
