/*+++
title      = "Value and index in one 64-bit atomic"
change     = "An ordered image of the value and the inverted index share a word whose maximum in shared memory is the first maximum."
scope      = "grid"
grid       = "fixed"
fixed_grid = 72
walk       = "contiguous"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["multi_add", "last_block", "atomic", "shared_accumulation"]
dtypes     = ["float32", "int32"]
ops        = ["argmax"]
+++*/
// Right: images order as values do, both zeros have one image and all NaNs the highest; inverted offsets let
// the first of equals win. Word 0 belongs to no element. A share of 2^32 elements is beyond any memory.
__device__ unsigned image(int x) { return (unsigned)x ^ 0x80000000u; }
__device__ unsigned image(float x)
{
    if (x != x)
        return 0xffffffffu;
    const unsigned bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

extern "C" __global__ void reduce_packed_argmax(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ unsigned long long best;
    __shared__ unsigned arrivals;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(blockIdx.x * share, n), end = min(begin + share, n);
    if (threadIdx.x == 0)
        best = 0;
    __syncthreads();

    unsigned long long mine = 0;
    for (size_t k = begin + threadIdx.x; k < end; k += BLOCK)
        mine = max(mine, (unsigned long long)image(in[k]) << 32 | ~(unsigned)(k - begin));
    atomicMax(&best, mine);
    __syncthreads();

    if (threadIdx.x == 0) {
        const size_t winner = begin + ~(unsigned)best;
        partials[blockIdx.x] = begin < end ? Op::lift(in[winner], winner) : Op::identity();
        __threadfence();
        arrivals = atomicInc(counter, gridDim.x - 1) + 1;
        __threadfence();
    }
    __syncthreads();
    if (arrivals < gridDim.x || threadIdx.x >= 32)
        return;
    Acc value = Op::identity();
    for (unsigned k = threadIdx.x; k < gridDim.x; k += 32)
        value = Op::combine(value, __ldcg(partials + k));
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}
