/*+++
title      = "Completely unrolled by template"
change     = "The block size is a template argument, so all steps that it does not need disappear."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["template_unroll", "warp_unroll", "grid_stride", "no_divergence"]
+++*/
// Fault: the ladder of steps begins at 512, the largest block of the GPUs it was written for. A block of
// 1024 never takes in its upper 512 cells.
template <unsigned SIZE>
__device__ void fold_warp(Acc *s, unsigned t)
{
    Acc v = s[t];
#pragma unroll
    for (unsigned d = SIZE >= 64 ? 32 : SIZE / 2; d > 0; d /= 2) {
        v = Op::combine(v, s[t + d]);
        __syncwarp();
        s[t] = v;
        __syncwarp();
    }
}

template <unsigned SIZE>
__device__ void fold_block(Acc *s, unsigned t)
{
    if (SIZE >= 512) {
        if (t < 256)
            s[t] = Op::combine(s[t], s[t + 256]);
        __syncthreads();
    }
    if (SIZE >= 256) {
        if (t < 128)
            s[t] = Op::combine(s[t], s[t + 128]);
        __syncthreads();
    }
    if (SIZE >= 128) {
        if (t < 64)
            s[t] = Op::combine(s[t], s[t + 64]);
        __syncthreads();
    }
    if (t < 32)
        fold_warp<SIZE>(s, t);
}

extern "C" __global__ void unrolled_up_to_512(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    Acc v = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        v = Op::combine(v, Op::lift(in[k], k));
    cells[threadIdx.x] = v;
    __syncthreads();
    fold_block<BLOCK>(cells, threadIdx.x);
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
