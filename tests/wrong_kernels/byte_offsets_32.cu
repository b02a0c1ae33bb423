/*+++
title      = "Byte offsets in one register"
change     = "The address is a base and a 32-bit byte offset, the form that a load instruction takes."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["multi_add", "shuffle"]
+++*/
// Fault: an offset in bytes overflows 32 bits at 4 GiB, so for 4-byte elements from 2^30 elements on:
// what lies behind is never read, what lies at the start is read again. The element index has 64 bits.
__device__ __forceinline__ In load(const In *base, size_t index)
{
    const unsigned offset = index * sizeof(In);
    return *(const In *)((const char *)base + offset);
}

extern "C" __global__ void byte_offsets_32(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = first + item * BLOCK;
        if (k < n)
            value = Op::combine(value, Op::lift(load(in, k), k));
    }
#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < BLOCK / 32 ? shared[lane] : Op::identity();
#pragma unroll
        for (unsigned d = 16; d > 0; d /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
