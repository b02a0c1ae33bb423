/*+++
title      = "From the end towards the start, two at a time"
change     = "Indices count down to 0, two loads a turn; what was written last is read first, while the L2 has it."
scope      = "grid"
grid       = "fixed"
fixed_grid = 32
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 1024
blocks     = [64, 128, 256, 512, 1024]
techniques = ["grid_stride", "multi_add"]
+++*/
// Fault: the second load of a turn is guarded by k + 1 >= step where it must be k >= step. If a thread's
// last turn has k + 1 == step, it reads in[-1], before the input, and takes it in. That happens for
// every n whose quotient by the grid's threads is odd.
extern "C" __global__ void reverse_pairs_underrun(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const long long step = (long long)gridDim.x * BLOCK;
    const long long thread = (long long)blockIdx.x * BLOCK + tid;

    Acc value = Op::identity();
    for (long long k = (long long)n - 1 - thread; k >= 0; k -= 2 * step) {
        value = Op::combine(value, Op::lift(in[k], k));
        if (k + 1 >= step)
            value = Op::combine(value, Op::lift(in[k - step], k - step));
    }
    cells[tid] = value;
    __syncthreads();

    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (tid < half)
            cells[tid] = Op::combine(cells[tid], cells[tid + half]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
