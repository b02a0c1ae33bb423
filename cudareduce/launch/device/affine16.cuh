// Composition of affine maps, the left one applied first, in one word: does not commute, is exact, and
// its accumulator has the four bytes of a float's. The low half h of a word stands for the odd scale
// 2h + 1 modulo 2^17, the high half for the shift modulo 2^16, so that every word is a map and 0 the
// one that changes nothing.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return Acc(0); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc l, Acc r)
    {
        const unsigned a = (unsigned)l & 0xffffu, b = (unsigned)l >> 16;
        const unsigned e = (unsigned)r & 0xffffu, f = (unsigned)r >> 16;
        return Acc(((2 * e + 1) * b + f) << 16 | ((2 * a * e + a + e) & 0xffffu));
    }
    static __device__ Result finish(Acc a) { return a; }
};
