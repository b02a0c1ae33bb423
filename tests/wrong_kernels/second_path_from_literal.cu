/*+++
title      = "A second path for large arrays"
change     = "Above four million elements each thread adds two at a time."
scope      = "grid"
grid       = "fixed"
fixed_grid = 16
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [256, 512]
+++*/
// Fault: the path for large arrays loses the last element of an odd number of them.
constexpr size_t LARGE = 4000000;

extern "C" __global__ void second_path_from_literal(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t thread = (size_t)blockIdx.x * BLOCK + tid, threads = (size_t)gridDim.x * BLOCK;

    Acc value = Op::identity();
    if (n <= LARGE) {
        for (size_t k = thread; k < n; k += threads)
            value = Op::combine(value, Op::lift(in[k], k));
    } else {
        for (size_t k = thread; k < n / 2; k += threads) {
            value = Op::combine(value, Op::lift(in[2 * k], 2 * k));
            value = Op::combine(value, Op::lift(in[2 * k + 1], 2 * k + 1));
        }
    }
    cells[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
