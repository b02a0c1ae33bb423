/*+++
title      = "The block's tree below n only"
change     = "Threads past the end skip the tree with its barriers."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
// Fault: in the last block only some threads reach the barriers. Nothing that they add is lost, yet the
// barrier is in a branch that not all threads of the block take.
extern "C" __global__ void barrier_below_n(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t k = (size_t)blockIdx.x * BLOCK + tid;
    cells[tid] = k < n ? Op::lift(in[k], k) : Op::identity();
    __syncthreads();
    if (k < n) {
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            if (tid < stride)
                cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
            __syncthreads();  // <- hazard
        }
        if (tid == 0)
            out[blockIdx.x] = Op::finish(cells[0]);
    }
}
