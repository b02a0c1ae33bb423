/*+++
title      = "Warp number from the hardware"
change     = "The warp's number is read from a special register, which spares a shift."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
requires   = ["inline_ptx"]
techniques = ["shuffle", "grid_stride"]
+++*/
// Fault: %warpid is the warp's slot in the SM, not its number in the block. A block that shares its SM
// with others, or starts on one half emptied, has numbers from BLOCK / 32 up and writes behind its
// shared array, while cells that nobody wrote are taken in. Alone on an SM it is usually right.
__device__ __forceinline__ unsigned warp_number()
{
    unsigned id;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(id));
    return id;
}

extern "C" __global__ void hardware_warp_id(const In *in, Out *out, size_t n)
{
    __shared__ Acc warps[BLOCK / 32];
    const size_t step = (size_t)gridDim.x * BLOCK;

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += step)
        value = Op::combine(value, Op::lift(in[k], k));
#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    if (threadIdx.x % 32 == 0)
        warps[warp_number()] = value;
    __syncthreads();

    if (threadIdx.x == 0) {
        value = warps[0];
        for (unsigned w = 1; w < BLOCK / 32; w++)
            value = Op::combine(value, warps[w]);
        out[blockIdx.x] = Op::finish(value);
    }
}
