/*+++
title      = "Deeper unrolling on Hopper"
change     = "From compute capability 9.0 on a thread has eight loads in flight, elsewhere it goes one by one."
expect     = "Closer to the bandwidth of HBM3; nothing changes on older GPUs."
scope      = "grid"
grid       = "fixed"
fixed_grid = 244
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256]
techniques = ["grid_stride", "multi_add"]
+++*/
// Fault: on 9.0 the remainder behind the unrolled turns is taken by an `if`, one element a thread, but
// up to eight a thread may be left. Elements are lost there if n % (8 * threads of the grid) is more
// than these threads; older GPUs take the other path, which is right.
__device__ Acc take(const In *in, size_t n)
{
    const size_t step = (size_t)gridDim.x * BLOCK;
    size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    Acc value = Op::identity();
#if __CUDA_ARCH__ >= 900
    for (size_t turn = n / (8 * step); turn > 0; turn--) {
        In loaded[8];
#pragma unroll
        for (unsigned j = 0; j < 8; j++)
            loaded[j] = in[k + j * step];
#pragma unroll
        for (unsigned j = 0; j < 8; j++)
            value = Op::combine(value, Op::lift(loaded[j], k + j * step));
        k += 8 * step;
    }
    if (k < n)
        value = Op::combine(value, Op::lift(in[k], k));
#else
    for (; k < n; k += step)
        value = Op::combine(value, Op::lift(in[k], k));
#endif
    return value;
}

extern "C" __global__ void sm90_deep_unroll(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    cells[tid] = take(in, n);
    __syncthreads();
#pragma unroll
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
