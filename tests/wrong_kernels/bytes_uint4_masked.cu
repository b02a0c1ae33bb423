/*+++
title      = "Byte maximum, sixteen a load"
change     = "Every load brings sixteen bytes; of the last one, what lies behind the end is left out."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
items      = 16
vector     = 16
finish     = "atomic"
block      = 128
blocks     = [64, 128, 256]
dtypes     = ["uint8"]
ops        = ["max"]
+++*/
// Fault: the last vector is loaded whole and masked afterwards. For n % 16 other than 0 that reads up to
// 15 bytes behind the input, which need not be mapped. The answer itself is right wherever the load
// does not fault.
__device__ unsigned top_of_word(unsigned word, size_t first, size_t n, unsigned top)
{
#pragma unroll
    for (unsigned b = 0; b < 4; b++)
        if (first + b < n)
            top = max(top, word >> 8 * b & 0xffu);
    return top;
}

extern "C" __global__ void bytes_uint4_masked(const unsigned char *in, unsigned *out, size_t n)
{
    __shared__ unsigned highest;
    if (threadIdx.x == 0)
        highest = 0;
    __syncthreads();

    unsigned top = 0;
    const size_t step = (size_t)gridDim.x * BLOCK;
    for (size_t v = (size_t)blockIdx.x * BLOCK + threadIdx.x; 16 * v < n; v += step) {
        const uint4 x = reinterpret_cast<const uint4 *>(in)[v];
        top = top_of_word(x.x, 16 * v, n, top);
        top = top_of_word(x.y, 16 * v + 4, n, top);
        top = top_of_word(x.z, 16 * v + 8, n, top);
        top = top_of_word(x.w, 16 * v + 12, n, top);
    }
    atomicMax(&highest, top);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicMax(out, highest);
}
