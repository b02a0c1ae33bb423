/*+++
title      = "Byte sums by dp2a"
change     = "The low and the high two bytes of a word each meet a pair of 16-bit ones in a two-way dot product."
scope      = "grid"
grid       = "fixed"
fixed_grid = 80
walk       = "grid_stride"
finish     = "last_block"
block      = 512
blocks     = [128, 256, 512, 1024]
techniques = ["multi_add", "grid_stride", "last_block"]
dtypes     = ["int8", "uint8"]
ops        = ["sum"]
+++*/
// Right: words are read from the first multiple of 4 on, the up to three bytes at each end by the first
// block; signed and unsigned bytes each have their own form of the instruction.
__device__ int low_two(unsigned word, signed char) { return __dp2a_lo(0x00010001, (int)word, 0); }
__device__ int high_two(unsigned word, signed char) { return __dp2a_hi(0x00010001, (int)word, 0); }
__device__ int low_two(unsigned word, unsigned char) { return (int)__dp2a_lo(0x00010001u, word, 0u); }
__device__ int high_two(unsigned word, unsigned char) { return (int)__dp2a_hi(0x00010001u, word, 0u); }

extern "C" __global__ void reduce_dp2a_halves(const In *in, Out *out, size_t n, Acc *partials,
                                              unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const auto fold = [&](Acc value) {
        shared[tid] = value;
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            __syncthreads();
            if (tid < stride)
                shared[tid] += shared[tid + stride];
        }
    };

    const size_t head = min((size_t)((4 - (size_t)in % 4) % 4), n), words = (n - head) / 4;
    const unsigned *word = (const unsigned *)(in + head);
    Acc value = 0;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < words; k += (size_t)gridDim.x * BLOCK)
        value += Acc(low_two(word[k], In())) + Acc(high_two(word[k], In()));
    if (blockIdx.x == 0 && tid < head)
        value += Acc(in[tid]);
    if (blockIdx.x == 0 && head + 4 * words + tid < n)
        value += Acc(in[head + 4 * words + tid]);
    fold(value);

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (is_last) {
        fold(tid < gridDim.x ? __ldcg(partials + tid) : Acc(0));
        if (tid == 0)
            *out = Op::finish(shared[0]);
    }
}
