/*+++
title      = "Grid stride in 32 bits"
change     = "Index, stride and count are 32-bit, which spares the two-instruction 64-bit additions."
expect     = "A third fewer instructions in the loop."
scope      = "grid"
grid       = "fixed"
fixed_grid = 264
walk       = "grid_stride"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 96, 128, 256, 384, 512, 1024]
techniques = ["grid_stride", "last_block"]
+++*/
// Fault: from 2^32 elements on, the count loses its upper half and most of the input is never read; just
// below, the index wraps past 2^32 back to small values and the loop does not end. Up to
// 2^32 - gridDim.x * BLOCK elements, which 8-bit types reach with 4 GiB, all is right.
__device__ Acc fold_block(Acc value)
{
    __shared__ Acc warps[BLOCK / 32];
    for (unsigned d = 16; d > 0; d /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
    for (unsigned w = 1; w < BLOCK / 32; w++)
        value = Op::combine(value, warps[w]);
    return value;
}

extern "C" __global__ void unsigned_grid_stride(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ unsigned arrived;
    const unsigned count = n, step = gridDim.x * BLOCK;

    Acc value = Op::identity();
    for (unsigned k = blockIdx.x * BLOCK + threadIdx.x; k < count; k += step)
        value = Op::combine(value, Op::lift(in[k], k));
    value = fold_block(value);

    if (threadIdx.x == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        arrived = atomicInc(counter, gridDim.x - 1);
        __threadfence();
    }
    __syncthreads();
    if (arrived != gridDim.x - 1)
        return;
    value = Op::identity();
    for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(partials + b));
    value = fold_block(value);
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
