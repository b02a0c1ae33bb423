// Product of 2x2 matrices modulo 2^32: does not commute, is exact, so any swap of two operands shows.
// An element x stands for the matrix [[x, 1], [1, 0]]; the result is the product's four words.
struct Acc {
    unsigned a, b, c, d;
};
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return {1u, 0u, 0u, 1u}; }
    static __device__ Acc lift(Element x, size_t) { return {(unsigned)x, 1u, 1u, 0u}; }
    static __device__ Acc combine(Acc l, Acc r)
    {
        return {l.a * r.a + l.b * r.c, l.a * r.b + l.b * r.d,
                l.c * r.a + l.d * r.c, l.c * r.b + l.d * r.d};
    }
    static __device__ Result finish(Acc a) { return a; }
};
