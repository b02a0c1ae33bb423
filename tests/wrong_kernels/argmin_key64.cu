/*+++
title      = "Arg-minimum by 64-bit keys"
change     = "An ordered image of the float above, the index below: the smallest key is the first minimum."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 192, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["argmin"]
techniques = ["atomic"]
+++*/
// Fault: the ordered image puts -0 below +0, although they compare equal. With +0 before -0 and no
// smaller element, the answer is the index of -0 and not that of the first zero.
__device__ unsigned long long key_of(float x, size_t index)
{
    const unsigned bits = __float_as_uint(x);
    unsigned image = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (x != x)
        image = 0; // the first NaN wins
    return (unsigned long long)image << 32 | (unsigned)index;
}

extern "C" __global__ void argmin_key64(const float *in, long long *out, size_t n)
{
    __shared__ unsigned long long least;
    if (threadIdx.x == 0)
        least = ~0ull;
    __syncthreads();

    unsigned long long mine = ~0ull;
    for (size_t k = threadIdx.x; k < n; k += BLOCK) {
        const unsigned long long key = key_of(in[k], k);
        mine = key < mine ? key : mine;
    }
    atomicMin(&least, mine);
    __syncthreads();

    if (threadIdx.x == 0)
        *out = (long long)(unsigned)least;
}
