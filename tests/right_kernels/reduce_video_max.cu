/*+++
title      = "Four byte maxima an instruction"
change     = "One block forms maxima of four bytes at a time with a video instruction and unpacks them at the end."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 1024
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
dtypes     = ["int8", "uint8"]
ops        = ["max"]
+++*/
// Right: a thread unpacks its four maxima only if it has read a word, so the byte types' least value never
// stands in for the accumulator's identity, which is lower and the answer of no elements.
__device__ unsigned larger(unsigned a, unsigned b, signed char) { return __vmaxs4(a, b); }
__device__ unsigned larger(unsigned a, unsigned b, unsigned char) { return __vmaxu4(a, b); }

extern "C" __global__ void reduce_video_max(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t head = min((size_t)((0 - (size_t)in) & 3u), n), words = (n - head) / 4;
    const unsigned *word = (const unsigned *)(in + head);

    Acc value = Op::identity();
    if (tid < words) {
        unsigned best = word[tid];
        for (size_t k = (size_t)tid + BLOCK; k < words; k += BLOCK)
            best = larger(best, word[k], In());
#pragma unroll
        for (unsigned shift = 0; shift < 32; shift += 8)
            value = Op::combine(value, Acc((In)(best >> shift)));
    }
    if (tid < head)
        value = Op::combine(value, Op::lift(in[tid], tid));
    for (size_t k = head + 4 * words + tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));

    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[0] = Op::finish(shared[0]);
}
