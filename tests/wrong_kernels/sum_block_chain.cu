/*+++
title  = "A chain of blocks"
change = "Blocks take turns in the order of their indices and carry the running total along; the last writes it."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
dtypes = ["float64"]
ops    = ["sum"]
+++*/
// Fault: total and turn are volatile, but no fence keeps the new total ahead of the new turn, so the
// next block may add to an old total. And a block waits for all lower ones without knowing that they
// have been started; a GPU that starts higher blocks first and is full hangs. The author took volatile
// for an order between threads. Shows by chance, with two blocks and more.
extern "C" __global__ void sum_block_chain(const double *in, double *out, size_t n, double *partials,
                                           unsigned *counter)
{
    __shared__ double sums[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS);

    double sum = 0;
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * BLOCK + tid;
        if (k < n)
            sum += in[k];
    }
    sums[tid] = sum;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            sums[tid] += sums[tid + stride];
        __syncthreads();
    }

    if (tid == 0) {
        volatile unsigned *turn = counter;
        volatile double *total = partials;
        while (*turn != blockIdx.x)
            ;
        const double before = blockIdx.x > 0 ? *total : 0.0;
        if (blockIdx.x == gridDim.x - 1) {
            *out = before + sums[0];
            *turn = 0;
        } else {
            *total = before + sums[0];
            *turn = blockIdx.x + 1;
        }
    }
}
