/*+++
title      = "Minimum in quads, compared tail"
change     = "Each thread takes four neighbours at a time; up to three elements are left for a short tail."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
items      = 4
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["float32", "float64"]
ops        = ["min"]
+++*/
// Fault: the tail is written with a plain `<`, which is false for NaN, while the quads use the
// operator. A NaN is lost if it is one of the last n % 4 elements, and nowhere else.
extern "C" __global__ void min_quads_compare_tail(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t thread = (size_t)blockIdx.x * BLOCK + tid, threads = (size_t)gridDim.x * BLOCK;
    const size_t quads = n / 4;

    Acc least = Op::identity();
    for (size_t q = thread; q < quads; q += threads) {
        const In *p = in + 4 * q;
        const Acc low = Op::combine(Op::lift(p[0], 4 * q), Op::lift(p[1], 4 * q + 1));
        const Acc high = Op::combine(Op::lift(p[2], 4 * q + 2), Op::lift(p[3], 4 * q + 3));
        least = Op::combine(least, Op::combine(low, high));
    }
    if (thread < n % 4) {
        const Acc x = Op::lift(in[4 * quads + thread], 4 * quads + thread);
        if (x < least)
            least = x;
    }
    cells[tid] = least;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
