/*+++
title      = "Compare-and-swap loop of its own"
change     = "Each warp's partial goes into the answer by a compare-and-swap loop written out for 32 and for 64 bits, not by the operator's atomic."
scope      = "grid"
grid       = "fixed"
fixed_grid = 56
walk       = "grid_stride"
finish     = "atomic"
block      = 128
blocks     = [32, 64, 96, 128, 160, 192, 224, 256]
techniques = ["shuffle", "multi_add", "grid_stride", "atomic"]
ops        = ["min", "max"]
+++*/
// Right: the loop ends when combining would change no bit or when the swap finds the bits it expected, and
// bits are compared as whole numbers, so a NaN that is there already ends it as well.
template <class Word>
__device__ void swap_until_stable(Acc *address, Acc mine)
{
    static_assert(sizeof(Word) == sizeof(Acc), "the accumulator is one word");
    Word *cell = reinterpret_cast<Word *>(address);
    Word there = atomicCAS(cell, Word(0), Word(0));
    for (;;) {
        Acc now;
        memcpy(&now, &there, sizeof now);
        now = Op::combine(now, mine);
        Word wanted;
        memcpy(&wanted, &now, sizeof wanted);
        if (wanted == there)
            return;
        const Word found = atomicCAS(cell, there, wanted);
        if (found == there)
            return;
        there = found;
    }
}

template <unsigned SIZE> struct WordOf;
template <> struct WordOf<4> { using type = unsigned; };
template <> struct WordOf<8> { using type = unsigned long long; };

extern "C" __global__ void reduce_swap_loop(const In *in, Out *out, size_t n)
{
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    if ((threadIdx.x & 31) == 0)
        swap_until_stable<WordOf<sizeof(Acc)>::type>(out, value);
}
