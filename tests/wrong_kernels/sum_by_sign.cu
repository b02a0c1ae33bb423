/*+++
title      = "Positive and negative apart"
change     = "Positive and negative elements are summed apart, by two block sums one after the other, and added once."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float32", "float64"]
ops        = ["sum"]
+++*/
// Fault: the block sum uses one shared array and ends by reading it; the second call writes it anew with
// no barrier in between. A warp that is ahead puts its negative sum where a slow warp still reads a
// positive one. Harmless unless that slow warp is the first, whose total is stored; five shuffles usually
// give it time. Shows by chance, for blocks of more than one warp.
__device__ Acc block_sum(Acc sum)
{
    __shared__ Acc warps[BLOCK / 32];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned w = 0; w < BLOCK / 32; w++)
        sum += warps[w];
    return sum;
}

extern "C" __global__ void sum_by_sign(const In *in, Out *out, size_t n)
{
    Acc positive = 0, negative = 0;
    const size_t step = (size_t)gridDim.x * BLOCK;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += step) {
        const Acc x = in[k];
        if (x > 0)
            positive += x;
        else
            negative += x;
    }
    positive = block_sum(positive);
    negative = block_sum(negative);
    if (threadIdx.x == 0)
        out[blockIdx.x] = positive + negative;
}
