/*+++
title      = "Integer maximum, one atomic a block"
change     = "A block's tile goes through a shared tree, and one atomicMax hands it on."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "atomic"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["int32"]
ops        = ["max"]
techniques = ["atomic", "no_divergence"]
+++*/
// Fault: the start value is -INT_MAX, which is INT_MIN + 1, because -2147483648 as a literal warns. If
// every element is INT_MIN the answer is one too large; any other array is right.
constexpr int SMALLEST = -0x7fffffff;

extern "C" __global__ void block_max_symmetric_int(const int *in, int *out, size_t n)
{
    __shared__ int cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t tile = (size_t)blockIdx.x * (BLOCK * ITEMS);

    int top = SMALLEST;
#pragma unroll
    for (unsigned item = 0; item < ITEMS; ++item) {
        const size_t k = tile + item * BLOCK + tid;
        top = max(top, k < n ? in[k] : SMALLEST);
    }
    cells[tid] = top;
    __syncthreads();

    for (unsigned half = BLOCK >> 1; half; half >>= 1) {
        if (tid < half)
            cells[tid] = max(cells[tid], cells[tid + half]);
        __syncthreads();
    }
    if (tid == 0)
        atomicMax(out, cells[0]);
}
