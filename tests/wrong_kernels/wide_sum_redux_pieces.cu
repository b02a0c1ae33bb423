/*+++
title      = "64-bit sum by 32-bit warp reductions"
change     = "A 64-bit value is cut into pieces, each summed over the warp by one instruction."
expect     = "Three instructions for ten shuffles."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
min_cc     = "8.0"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["int64", "uint64"]
ops        = ["sum"]
techniques = ["multi_add"]
+++*/
// Fault: pieces of 28 bits leave 4 bits of room for the sum of 32 lanes, which needs 5. If the low or
// middle pieces of a warp sum to 2^32 or more, the carry is lost. Values below 2^27, the usual test, are
// right, and so is about one warp in two of random words.
__device__ unsigned long long warp_sum(unsigned long long v)
{
    const unsigned mask = (1u << 28) - 1;
    const unsigned long long low = __reduce_add_sync(0xffffffffu, (unsigned)v & mask);
    const unsigned long long middle = __reduce_add_sync(0xffffffffu, (unsigned)(v >> 28) & mask);
    const unsigned long long high = __reduce_add_sync(0xffffffffu, (unsigned)(v >> 56));
    return low + (middle << 28) + (high << 56);
}

extern "C" __global__ void wide_sum_redux_pieces(const In *in, Out *out, size_t n)
{
    __shared__ unsigned long long warps[32];
    const unsigned tid = threadIdx.x;
    const size_t tile = (size_t)blockIdx.x * BLOCK * ITEMS;

    unsigned long long sum = 0;
    for (unsigned j = 0; j < ITEMS; j++) {
        const size_t k = tile + j * BLOCK + tid;
        if (k < n)
            sum += (unsigned long long)in[k];
    }
    sum = warp_sum(sum);
    if (tid % 32 == 0)
        warps[tid / 32] = sum;
    __syncthreads();
    if (tid < 32) {
        sum = warp_sum(tid < BLOCK / 32 ? warps[tid] : 0);
        if (tid == 0)
            out[blockIdx.x] = (Out)sum;
    }
}
