/*+++
title      = "Four strides a turn"
change     = "The main loop takes four elements a turn without checks, a short loop the remainder."
scope      = "grid"
grid       = "fixed"
fixed_grid = 132
walk       = "grid_stride"
items      = 4
finish     = "atomic"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["atomic", "grid_stride", "multi_add"]
+++*/
// Fault: the bound n - 3 * step is unsigned and wraps to nearly 2^64 where n is below three strides, so
// the unchecked loop runs over the end of the input. Shows for n below 3 * BLOCK, and a little above
// one and two tiles; larger inputs always have the three strides.
extern "C" __global__ void unroll_bound_underflow(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t step = (size_t)gridDim.x * BLOCK;

    Acc a = Op::identity(), b = a, c = a, d = a;
    size_t k = (size_t)blockIdx.x * BLOCK + tid;
    for (; k < n - 3 * step; k += 4 * step) {
        a = Op::combine(a, Op::lift(in[k], k));
        b = Op::combine(b, Op::lift(in[k + step], k + step));
        c = Op::combine(c, Op::lift(in[k + 2 * step], k + 2 * step));
        d = Op::combine(d, Op::lift(in[k + 3 * step], k + 3 * step));
    }
    for (; k < n; k += step)
        a = Op::combine(a, Op::lift(in[k], k));
    cells[tid] = Op::combine(Op::combine(a, b), Op::combine(c, d));
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        Op::atomic(out, cells[0]);
}
