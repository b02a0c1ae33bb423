/*+++
title      = "Byte sum, two 16-bit sums in a word"
change     = "Four bytes are added by two integer additions, even and odd bytes in 16-bit lanes of a word."
scope      = "grid"
grid       = "fixed"
fixed_grid = 8
walk       = "grid_stride"
items      = 4
vector     = 4
finish     = "atomic"
block      = 256
blocks     = [128, 256, 512, 1024]
dtypes     = ["uint8"]
ops        = ["sum"]
techniques = ["atomic"]
+++*/
// Fault: a 16-bit lane holds 257 bytes of 255 and is emptied only at the end. A thread that takes more
// words than that overflows into its neighbour and past the word: from about 2 million elements of 255,
// or 4 million random ones.
extern "C" __global__ void bytes_swar_lanes(const unsigned char *in, unsigned *out, size_t n)
{
    __shared__ unsigned block_sum;
    if (threadIdx.x == 0)
        block_sum = 0;
    __syncthreads();

    const size_t words = n / 4, thread = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const unsigned *packed = reinterpret_cast<const unsigned *>(in);

    unsigned even = 0, odd = 0;
    for (size_t w = thread; w < words; w += (size_t)gridDim.x * BLOCK) {
        const unsigned four = packed[w];
        even += four & 0x00ff00ffu;
        odd += four >> 8 & 0x00ff00ffu;
    }
    unsigned sum = (even & 0xffffu) + (even >> 16) + (odd & 0xffffu) + (odd >> 16);
    if (thread < n % 4)
        sum += in[4 * words + thread];

    atomicAdd(&block_sum, sum);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(out, block_sum);
}
