/*+++
title      = "Sums by absolute difference"
change     = "usad(x, 0, sum) adds an unsigned word in one instruction; indices of threads are made by 24-bit multiplication."
scope      = "grid"
grid       = "fixed"
fixed_grid = 60
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
dtypes     = ["uint32"]
ops        = ["sum"]
+++*/
// Right: |x - 0| + sum modulo 2^32 is the wrapped sum; block numbers and block sizes lie far below 2^24,
// where umul24 gives the whole product, and elements themselves are counted in size_t.
static_assert(sizeof(Acc) == 4, "the instruction adds 32-bit words");

extern "C" __global__ void reduce_sad_accumulate(const In *in, Out *out, size_t n)
{
    __shared__ unsigned cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const unsigned first = __umul24(blockIdx.x, BLOCK) + tid, step = __umul24(gridDim.x, BLOCK);

    unsigned sum = 0;
    for (size_t k = first; k < n; k += step)
        sum = __usad(in[k], 0u, sum);
    cells[tid] = sum;
    __syncthreads();
#pragma unroll
    for (unsigned half = BLOCK >> 1; half; half >>= 1) {
        if (tid < half)
            cells[tid] = __usad(cells[tid + half], 0u, cells[tid]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = cells[0];
}
